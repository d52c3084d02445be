// Calls quantize twice through the client that openapi-generator generated. Standard input: {url, valid, invalid}, two
// bodies. Standard output: {quantized, failed}, the reply to the first and the problem that the second is.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	requant "generated/go"
)

type told struct {
	URL     string                  `json:"url"`
	Valid   requant.QuantizeRequest `json:"valid"`
	Invalid requant.QuantizeRequest `json:"invalid"`
}

func main() {
	var given told
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		log.Fatal(err)
	}
	configuration := requant.NewConfiguration()
	configuration.Servers = requant.ServerConfigurations{{URL: given.URL}}
	ops := requant.NewAPIClient(configuration).OpsAPI

	quantized, _, err := ops.Quantize(context.Background()).QuantizeRequest(given.Valid).Execute()
	if err != nil {
		log.Fatal(err)
	}
	_, _, err = ops.Quantize(context.Background()).QuantizeRequest(given.Invalid).Execute()
	var refused *requant.GenericOpenAPIError
	if !errors.As(err, &refused) {
		log.Fatalf("the invalid request gave %v", err)
	}
	problem, ok := refused.Model().(requant.Problem)
	if !ok {
		log.Fatalf("the error has the model %T", refused.Model())
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"quantized": quantized, "failed": problem}); err != nil {
		log.Fatal(err)
	}
}
