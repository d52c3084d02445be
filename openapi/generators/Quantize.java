import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.requant.client.ApiClient;
import io.requant.client.ApiException;
import io.requant.client.api.OpsApi;
import io.requant.client.model.QuantizeReply;
import io.requant.client.model.Problem;
import io.requant.client.model.QuantizeRequest;
import java.util.Map;

/**
 * Calls quantize twice through the client that openapi-generator generated. Standard input: {url, valid, invalid}, two
 * bodies. Standard output: {quantized, failed}, the reply to the first and the problem that the second is.
 */
public final class Quantize {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper mapper = ApiClient.createDefaultObjectMapper();
    JsonNode told = mapper.readTree(System.in);
    ApiClient client = new ApiClient();
    client.updateBaseUri(told.get("url").asText());
    OpsApi ops = new OpsApi(client);

    QuantizeReply quantized = ops.quantize(mapper.treeToValue(told.get("valid"), QuantizeRequest.class));
    Problem failed = null;
    try {
      ops.quantize(mapper.treeToValue(told.get("invalid"), QuantizeRequest.class));
    } catch (ApiException refused) {
      failed = mapper.readValue(refused.getResponseBody(), Problem.class);
    }
    System.out.println(mapper.writeValueAsString(Map.of("quantized", quantized, "failed", failed)));
  }
}
