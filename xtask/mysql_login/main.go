// A server that speaks the protocol of MySQL 8.0, and lets users in by caching_sha2_password over TLS alone. It is go-mysql-server, a
// real server of another make: the registries that tests reach have no MySQL. It keeps what it is told in memory.
//
// Usage: mysql-login CERTIFICATE KEY [as-it-is]. Its first line of output is its address.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"os"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/mysql_db"
	"github.com/dolthub/go-mysql-server/sql/types"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	must(err)
	// It has the variable for all sessions alone; MySQL has it for each session too. As it is, it refuses how a session begins.
	if len(os.Args) < 4 {
		sql.SystemVariables.AddSystemVariables([]sql.SystemVariable{&sql.MysqlSystemVariable{
			Name: "innodb_lock_wait_timeout", Scope: sql.GetMysqlScope(sql.SystemVariableScope_Both), Dynamic: true,
			Type: types.NewSystemIntType("innodb_lock_wait_timeout", 1, 1073741824, false), Default: int64(50),
		}})
	}
	databases := memory.NewDBProvider(memory.NewDatabase("shop"))
	engine := sqle.NewDefault(databases)
	users := engine.Analyzer.Catalog.MySQLDb
	users.SetPersister(&mysql_db.NoopPersister{})
	users.AddRootAccount()
	root := sql.NewBaseSessionWithClientServer("", sql.Client{User: "root", Address: "localhost"}, 1)
	asRoot := sql.NewContext(context.Background(), sql.WithSession(memory.NewSession(root, databases)))
	for _, query := range []string{
		"CREATE USER 'ann'@'%' IDENTIFIED WITH caching_sha2_password BY 's3cret'",
		"GRANT ALL ON *.* TO 'ann'@'%'",
	} {
		_, rows, _, err := engine.Query(asRoot, query)
		must(err)
		_, err = sql.RowIterToRows(asRoot, rows)
		must(err)
	}
	config := server.Config{
		Protocol: "tcp", Address: "127.0.0.1:0",
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	served, err := server.NewServer(config, engine, sql.NewContext, memory.NewSessionBuilder(databases), nil)
	must(err)
	fmt.Println(served.Listener.Addr())
	must(served.Start())
}
