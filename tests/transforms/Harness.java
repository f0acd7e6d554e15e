// Puts records through chains of the real transforms and predicates, for `cargo xtask test parity`.
//
// Reads a case on each line of its input and answers on one line; `exchange.rs` tells what they look like.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

public class Harness {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        // Whatever the classes print must not get between the answers.
        System.setOut(System.err);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            if (!in.ready()) {
                out.flush();
            }
        }
        out.flush();
    }

    record Step(Transformation<SourceRecord> transform, Predicate<SourceRecord> predicate, boolean negate) {}

    static ObjectNode answer(JsonNode test) {
        ObjectNode answer = JSON.createObjectNode();
        List<Step> chain = new ArrayList<>();
        try {
            for (JsonNode step : test.get("transforms")) {
                chain.add(step(step));
            }
        } catch (Throwable error) {
            answer.put("refused", error.toString());
            return answer;
        }
        ArrayNode results = answer.putArray("results");
        // A delete and its tombstone have one list of headers, as the connector makes them.
        SourceRecord last = null;
        for (JsonNode json : test.get("records")) {
            SourceRecord record = record(json);
            if (last != null && record.value() == null && record.valueSchema() == null && isDelete(last)) {
                record = record.newRecord(record.topic(), record.kafkaPartition(), record.keySchema(), record.key(), null, null,
                        record.timestamp(), last.headers());
            }
            last = record;
            results.add(result(chain, record));
        }
        return answer;
    }

    static Step step(JsonNode step) throws Exception {
        Transformation<SourceRecord> transform = make(step);
        transform.configure(options(step));
        JsonNode predicate = step.get("predicate");
        if (predicate == null) {
            return new Step(transform, null, false);
        }
        Predicate<SourceRecord> made = make(predicate);
        made.configure(options(predicate));
        return new Step(transform, made, predicate.path("negate").asBoolean());
    }

    @SuppressWarnings("unchecked")
    static <T> T make(JsonNode plugin) throws Exception {
        return (T) Class.forName(plugin.get("class").asText()).getDeclaredConstructor().newInstance();
    }

    static Map<String, String> options(JsonNode plugin) {
        Map<String, String> options = new HashMap<>();
        plugin.get("options").fields().forEachRemaining(e -> options.put(e.getKey(), e.getValue().asText()));
        return options;
    }

    static boolean isDelete(SourceRecord record) {
        return record.valueSchema() != null && record.valueSchema().name() != null && record.valueSchema().name().endsWith(".Envelope")
                && record.value() instanceof Struct event && event.schema().field("op") != null && "d".equals(event.get("op"));
    }

    static ObjectNode result(List<Step> chain, SourceRecord record) {
        ObjectNode result = JSON.createObjectNode();
        try {
            for (Step step : chain) {
                if (step.predicate != null && step.negate == step.predicate.test(record)) {
                    continue;
                }
                record = step.transform.apply(record);
                if (record == null) {
                    return result.put("dropped", true);
                }
            }
            return write(record);
        } catch (Throwable error) {
            return result.put("error", error.toString());
        }
    }

    // From JSON

    static SourceRecord record(JsonNode json) {
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode header : json.get("headers")) {
            headers.add(header.get("name").asText(), typed(header.get("value")));
        }
        SchemaAndValue key = typed(json.get("key"));
        SchemaAndValue value = typed(json.get("value"));
        JsonNode partition = json.get("partition");
        JsonNode timestamp = json.get("timestamp");
        // Only the number of entries matters.
        Map<String, Long> offset = new HashMap<>();
        for (int i = 0; i < json.path("offset").asInt(1); i++) offset.put("entry" + i, 1L);
        return new SourceRecord(Map.of("server", "srv"), offset, json.get("topic").asText(),
                partition.isNull() ? null : Integer.valueOf(partition.asInt()), key.schema(), key.value(), value.schema(), value.value(),
                timestamp.isNull() ? null : Long.valueOf(timestamp.asLong()), headers);
    }

    static SchemaAndValue typed(JsonNode json) {
        Schema schema = json.get("schema").isNull() ? null : schema(json.get("schema"));
        return new SchemaAndValue(schema, value(json.get("value"), schema));
    }

    static Schema schema(JsonNode json) {
        SchemaBuilder builder;
        String type = json.get("type").asText();
        switch (type) {
            case "array": builder = SchemaBuilder.array(schema(json.get("items"))); break;
            case "map": builder = SchemaBuilder.map(schema(json.get("keys")), schema(json.get("values"))); break;
            default: builder = SchemaBuilder.type(Schema.Type.valueOf(type.toUpperCase(Locale.ROOT)));
        }
        if (json.has("fields")) {
            for (JsonNode field : json.get("fields")) {
                builder.field(field.get("name").asText(), schema(field.get("schema")));
            }
        }
        if (json.get("optional").asBoolean()) builder.optional();
        if (json.has("name")) builder.name(json.get("name").asText());
        if (json.has("version")) builder.version(json.get("version").asInt());
        if (json.has("doc")) builder.doc(json.get("doc").asText());
        if (json.has("parameters")) {
            for (JsonNode parameter : json.get("parameters")) {
                builder.parameter(parameter.get(0).asText(), parameter.get(1).asText());
            }
        }
        if (json.has("default")) builder.defaultValue(value(json.get("default"), builder));
        return builder.build();
    }

    static Object value(JsonNode json, Schema schema) {
        if (json.isNull()) return null;
        Map.Entry<String, JsonNode> entry = json.fields().next();
        JsonNode value = entry.getValue();
        switch (entry.getKey()) {
            case "boolean": return value.asBoolean();
            case "int8": return Byte.valueOf(value.asText());
            case "int16": return Short.valueOf(value.asText());
            case "int32": return Integer.valueOf(value.asText());
            case "int64": return Long.valueOf(value.asText());
            case "float32": return Float.intBitsToFloat(Integer.parseInt(value.asText()));
            case "float64": return Double.longBitsToDouble(Long.parseLong(value.asText()));
            case "string": return value.asText();
            // Debezium wraps bytes in a buffer.
            case "bytes": return ByteBuffer.wrap(Base64.getDecoder().decode(value.asText()));
            case "decimal": return new BigDecimal(new BigInteger(value.get(0).asText()), value.get(1).asInt());
            case "date": return new Date(Long.parseLong(value.asText()));
            case "array": {
                List<Object> items = new ArrayList<>();
                for (JsonNode item : value) items.add(value(item, schema == null ? null : schema.valueSchema()));
                return items;
            }
            case "map": {
                Map<Object, Object> map = schema == null ? new HashMap<>() : new LinkedHashMap<>();
                for (JsonNode pair : value) {
                    map.put(value(pair.get(0), schema == null ? null : schema.keySchema()),
                            value(pair.get(1), schema == null ? null : schema.valueSchema()));
                }
                return map;
            }
            case "struct": {
                Struct struct = new Struct(schema);
                int at = 0;
                for (JsonNode item : value) {
                    Field field = schema.fields().get(at++);
                    // A null that was never put there is what Debezium leaves in a required field with a default.
                    if (!item.isNull()) struct.put(field, value(item, field.schema()));
                }
                return struct;
            }
            default: throw new IllegalArgumentException(entry.getKey());
        }
    }

    // To JSON

    static ObjectNode write(SourceRecord record) {
        ObjectNode json = JSON.createObjectNode();
        json.put("topic", record.topic());
        json.put("partition", record.kafkaPartition());
        json.put("timestamp", record.timestamp() == null ? null : record.timestamp().toString());
        json.set("key", write(record.keySchema(), record.key()));
        json.set("value", write(record.valueSchema(), record.value()));
        ArrayNode headers = json.putArray("headers");
        for (Header header : record.headers()) {
            headers.addObject().put("name", header.key()).set("value", write(header.schema(), header.value()));
        }
        return json;
    }

    static ObjectNode write(Schema schema, Object value) {
        ObjectNode json = JSON.createObjectNode();
        json.set("schema", schema == null ? JSON.nullNode() : write(schema));
        json.set("value", write(value));
        return json;
    }

    static ObjectNode write(Schema schema) {
        ObjectNode json = JSON.createObjectNode();
        json.put("type", schema.type().getName());
        json.put("optional", schema.isOptional());
        if (schema.name() != null) json.put("name", schema.name());
        if (schema.version() != null) json.put("version", schema.version());
        if (schema.doc() != null) json.put("doc", schema.doc());
        if (schema.parameters() != null && !schema.parameters().isEmpty()) {
            ArrayNode parameters = json.putArray("parameters");
            schema.parameters().forEach((name, value) -> parameters.addArray().add(name).add(value));
        }
        if (schema.defaultValue() != null) json.set("default", write(schema.defaultValue()));
        switch (schema.type()) {
            case ARRAY: json.set("items", schema.valueSchema() == null ? JSON.nullNode() : write(schema.valueSchema())); break;
            case MAP:
                json.set("keys", schema.keySchema() == null ? JSON.nullNode() : write(schema.keySchema()));
                json.set("values", schema.valueSchema() == null ? JSON.nullNode() : write(schema.valueSchema()));
                break;
            case STRUCT: {
                ArrayNode fields = json.putArray("fields");
                for (Field field : schema.fields()) {
                    fields.addObject().put("name", field.name()).set("schema", write(field.schema()));
                }
                break;
            }
            default:
        }
        return json;
    }

    static JsonNode write(Object value) {
        ObjectNode json = JSON.createObjectNode();
        if (value == null) return JSON.nullNode();
        if (value instanceof Boolean v) return json.put("boolean", v);
        if (value instanceof Byte v) return json.put("int8", v.toString());
        if (value instanceof Short v) return json.put("int16", v.toString());
        if (value instanceof Integer v) return json.put("int32", v.toString());
        if (value instanceof Long v) return json.put("int64", v.toString());
        if (value instanceof Float v) return json.put("float32", Integer.toString(Float.floatToIntBits(v)));
        if (value instanceof Double v) return json.put("float64", Long.toString(Double.doubleToLongBits(v)));
        if (value instanceof String v) return json.put("string", v);
        if (value instanceof byte[] v) return json.put("bytes", Base64.getEncoder().encodeToString(v));
        if (value instanceof ByteBuffer v) return json.put("bytes", Base64.getEncoder().encodeToString(v.array()));
        if (value instanceof BigDecimal v) {
            json.putArray("decimal").add(v.unscaledValue().toString()).add(v.scale());
            return json;
        }
        if (value instanceof Date v) return json.put("date", Long.toString(v.getTime()));
        if (value instanceof List<?> v) {
            ArrayNode items = json.putArray("array");
            v.forEach(item -> items.add(write(item)));
            return json;
        }
        if (value instanceof Map<?, ?> v) {
            ArrayNode pairs = json.putArray("map");
            v.forEach((k, e) -> pairs.addArray().add(write(k)).add(write(e)));
            return json;
        }
        if (value instanceof Struct v) {
            ArrayNode values = json.putArray("struct");
            for (Field field : v.schema().fields()) values.add(write(v.getWithoutDefault(field.name())));
            return json;
        }
        throw new IllegalArgumentException(value.getClass().toString());
    }
}
