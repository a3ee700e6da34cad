// Decodes the objects of rendered manifests as the API server of Kubernetes does, and refuses fields that it does not know.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	options := json.SerializerOptions{Yaml: true, Strict: true}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, options)
	count := 0
	for _, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---\n")) {
		lines := bytes.Split(document, []byte("\n"))
		isEmpty := true
		for _, line := range lines {
			isEmpty = isEmpty && (len(bytes.TrimSpace(line)) == 0 || line[0] == '#')
		}
		if isEmpty {
			continue
		}
		_, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			fmt.Printf("%v: %v\n", kind, err)
			os.Exit(1)
		}
		count++
	}
	if count == 0 {
		fmt.Println("nothing was rendered")
		os.Exit(1)
	}
	fmt.Printf("%d objects are right\n", count)
}
