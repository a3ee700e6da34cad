// Decodes the objects of rendered manifests as the API server of Kubernetes does, and refuses fields that it does not know.
// `decode unknown` takes objects of kinds that Kubernetes itself does not have: it checks that they are YAML without a key twice,
// with a version, a kind, a name and a spec.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// decodeUnknown returns the kind of an object of which nothing but its form is known.
func decodeUnknown(document []byte) (any, error) {
	var object struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       map[string]any `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(document, &object); err != nil {
		return object.Kind, err
	}
	if object.APIVersion == "" || object.Kind == "" || object.Metadata["name"] == nil || len(object.Spec) == 0 {
		return object.Kind, fmt.Errorf("no version, kind, name or spec")
	}
	return object.Kind, nil
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	options := json.SerializerOptions{Yaml: true, Strict: true}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, options)
	decode := func(document []byte) (any, error) {
		_, kind, err := decoder.Decode(document, nil, nil)
		return kind, err
	}
	if len(os.Args) == 2 && os.Args[1] == "unknown" {
		decode = decodeUnknown
	}
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
		kind, err := decode(document)
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
