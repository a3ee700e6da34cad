// Command field is the locks of bsm/redislock and of etcd, for the benchmark: `field bench redislock|etcd-mutex|etcd-bare`.
// ../../README.md describes them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"firstcome/peers/contest"

	"github.com/bsm/redislock"
	goredislib "github.com/redis/go-redis/v9"
	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

const usage = "usage: bench redislock|etcd-mutex|etcd-bare [poll_ms=N]"

// pollMs is the pause of those who poll: as long as that of the others.
const pollMs = 50

// sessionSeconds is the lease of a session of etcd.
const sessionSeconds = 30

func version(path string) string {
	if info, known := debug.ReadBuildInfo(); known {
		for _, module := range info.Deps {
			if module.Path == path {
				return module.Version
			}
		}
	}
	return "unknown"
}

// redisLock is bsm/redislock on one Redis.
type redisLock struct {
	client *redislock.Client
	poll   time.Duration
}

// untilOver is a constant pause until the time is over. A context that ends within a try could leave a key behind.
type untilOver struct {
	pause time.Duration
	end   time.Time
}

func (u untilOver) NextBackoff() time.Duration {
	if u.end.Before(time.Now().Add(u.pause)) {
		return 0
	}
	return u.pause
}

func (r redisLock) Acquire(name string, lease, wait time.Duration) (contest.Hold, error) {
	end := time.Now().Add(wait)
	// Its own limit is the lease.
	ctx, cancel := context.WithDeadline(context.Background(), end.Add(time.Minute))
	defer cancel()
	held, err := r.client.Obtain(ctx, name, lease, &redislock.Options{RetryStrategy: untilOver{r.poll, end}})
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return held, nil
}

func (r redisLock) Release(held contest.Hold) (bool, error) {
	err := held.(*redislock.Lock).Release(context.Background())
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return false, nil
	}
	return err == nil, err
}

func (r redisLock) What() string {
	return fmt.Sprintf("bsm/redislock %s on go-redis %s, LinearBackoff %s", version("github.com/bsm/redislock"),
		version("github.com/redis/go-redis/v9"), r.poll)
}

// mutex is concurrency.Mutex of etcd. An owner is a session, so each task has one.
type mutex struct {
	client   *etcd.Client
	sessions chan *concurrency.Session
}

type mutexHold struct {
	mutex   *concurrency.Mutex
	session *concurrency.Session
}

func (m mutex) Acquire(name string, _, wait time.Duration) (contest.Hold, error) {
	var session *concurrency.Session
	select {
	case session = <-m.sessions:
	default:
		var err error
		if session, err = concurrency.NewSession(m.client, concurrency.WithTTL(sessionSeconds)); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	lock := concurrency.NewMutex(session, "/"+name)
	if err := lock.Lock(ctx); err != nil {
		m.sessions <- session
		if ctx.Err() != nil {
			return nil, nil
		}
		return nil, err
	}
	return mutexHold{lock, session}, nil
}

func (m mutex) Release(held contest.Hold) (bool, error) {
	hold := held.(mutexHold)
	err := hold.mutex.Unlock(context.Background())
	m.sessions <- hold.session
	return err == nil, err
}

func (m mutex) What() string {
	return fmt.Sprintf("etcd client %s, concurrency.Mutex, a session for each task", version("go.etcd.io/etcd/client/v3"))
}

// bare is the two transactions that a lock on etcd takes at least, on a key that nobody else wants.
type bare struct {
	client *etcd.Client
}

func (b bare) Acquire(name string, _, _ time.Duration) (contest.Hold, error) {
	key := fmt.Sprintf("/bare/%s-%d", name, os.Getpid())
	create := etcd.Compare(etcd.CreateRevision(key), "=", 0)
	done, err := b.client.Txn(context.Background()).If(create).Then(etcd.OpPut(key, "1")).Commit()
	if err != nil {
		return nil, err
	}
	if !done.Succeeded {
		return nil, fmt.Errorf("%s is there: the bare transactions are for one task", key)
	}
	return key, nil
}

func (b bare) Release(held contest.Hold) (bool, error) {
	gone, err := b.client.Delete(context.Background(), held.(string))
	return err == nil && gone.Deleted == 1, err
}

func (b bare) What() string {
	return fmt.Sprintf("etcd client %s, a transaction and a delete", version("go.etcd.io/etcd/client/v3"))
}

func open(library, url string, poll time.Duration) (contest.Library, error) {
	if library == "redislock" {
		options, err := goredislib.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return redisLock{redislock.New(goredislib.NewClient(options)), poll}, nil
	}
	// It logs each wait whose time is over as a failure.
	client, err := etcd.New(etcd.Config{
		Endpoints: []string{strings.TrimPrefix(url, "etcd://")}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	if library == "etcd-bare" {
		return bare{client}, nil
	}
	return mutex{client, make(chan *concurrency.Session, 1024)}, nil
}

func run(arguments []string) error {
	poll, words := pollMs*time.Millisecond, []string{}
	for _, argument := range arguments {
		if value, isPoll := strings.CutPrefix(argument, "poll_ms="); isPoll {
			number, err := strconv.Atoi(value)
			if err != nil || number < 1 {
				return fmt.Errorf("%s: %s", argument, usage)
			}
			poll = time.Duration(number) * time.Millisecond
			continue
		}
		words = append(words, argument)
	}
	if len(words) != 2 || words[0] != "bench" {
		return fmt.Errorf("%s", usage)
	}
	switch words[1] {
	case "redislock", "etcd-mutex", "etcd-bare":
		return contest.Run(contest.Listen(), func(url string) (contest.Library, error) { return open(words[1], url, poll) })
	}
	return fmt.Errorf("%s", usage)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
