import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.source.SourceRecord;

import io.debezium.transforms.scripting.GraalJsEngine;
import io.debezium.transforms.scripting.Jsr223Engine;

/**
 * Records what the real engines answer to the expressions in crates/walferry-script/src/recorded: reads a file there, asks the
 * expression of each line anew, and prints the file. All are asked about the same records, so none may change them. ⏎ in an expression
 * stands for the end of a line. Beside the jars that the transforms' harness has, it needs from Maven
 * io.debezium:debezium-scripting:3.5.0.Final, org.apache.groovy:groovy-jsr223 and groovy-json 4.0.17, and org.graalvm.polyglot:js and
 * org.graalvm.js:js-scriptengine 25.0.1.
 *
 * java -cp ... Expressions.java groovy crates/walferry-script/src/recorded/groovy.txt
 * java -cp ... Expressions.java graal.js crates/walferry-script/src/recorded/graaljs.txt
 */
public class Expressions {
    static final String ARROW = "   =>   ";

    static final Schema ROW = SchemaBuilder.struct().name("x.Value").optional()
            .field("id", Schema.INT32_SCHEMA)
            .field("big", Schema.OPTIONAL_INT64_SCHEMA)
            .field("name", Schema.OPTIONAL_STRING_SCHEMA)
            .field("small", Schema.OPTIONAL_INT16_SCHEMA)
            .field("flag", Schema.OPTIONAL_BOOLEAN_SCHEMA)
            .field("dbl", Schema.OPTIONAL_FLOAT64_SCHEMA)
            .field("flt", Schema.OPTIONAL_FLOAT32_SCHEMA)
            .field("nothing", Schema.OPTIONAL_STRING_SCHEMA)
            .field("dflt", SchemaBuilder.string().optional().defaultValue("dd").build())
            .field("dec", Decimal.builder(2).optional().build())
            .field("raw", Schema.OPTIONAL_BYTES_SCHEMA)
            .field("tags", SchemaBuilder.array(Schema.OPTIONAL_STRING_SCHEMA).optional().build())
            .field("nums", SchemaBuilder.array(Schema.OPTIONAL_INT32_SCHEMA).optional().build())
            .field("attrs", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.OPTIONAL_STRING_SCHEMA).optional().build())
            .field("d", Date.builder().optional().build())
            .field("ts", Timestamp.builder().optional().build())
            .field("empty", Schema.OPTIONAL_STRING_SCHEMA)
            .field("zero", Schema.OPTIONAL_INT32_SCHEMA)
            .field("schema", Schema.OPTIONAL_STRING_SCHEMA)
            .field("values", Schema.OPTIONAL_STRING_SCHEMA)
            .field("class", Schema.OPTIONAL_STRING_SCHEMA)
            .field("count", Schema.OPTIONAL_INT32_SCHEMA)
            .field("json", Schema.OPTIONAL_STRING_SCHEMA)
            .field("zdec", Decimal.builder(2).optional().build())
            .field("eraw", Schema.OPTIONAL_BYTES_SCHEMA)
            .build();
    static final Schema SOURCE = SchemaBuilder.struct().name("s")
            .field("table", Schema.STRING_SCHEMA)
            .field("schema", Schema.STRING_SCHEMA)
            .field("db", Schema.STRING_SCHEMA)
            .field("snapshot", Schema.OPTIONAL_STRING_SCHEMA)
            .field("lsn", Schema.OPTIONAL_INT64_SCHEMA)
            .build();
    static final Schema ENVELOPE = SchemaBuilder.struct().name("x.Envelope")
            .field("before", ROW)
            .field("after", ROW)
            .field("source", SOURCE)
            .field("op", Schema.STRING_SCHEMA)
            .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA)
            .build();
    static final Schema KEY = SchemaBuilder.struct().name("k").field("id", Schema.INT32_SCHEMA).build();

    /** As Debezium makes it, bytes are in a buffer. */
    static Struct row(int id, String name) {
        return new Struct(ROW)
                .put("id", id).put("big", 5000000000L).put("name", name).put("small", (short) 7)
                .put("flag", id % 2 == 0).put("dbl", 2.5).put("flt", 1.1f)
                .put("dec", new BigDecimal("12.50")).put("raw", ByteBuffer.wrap(new byte[]{ 1, 2 }))
                .put("tags", Arrays.asList("a", "b", null)).put("nums", Arrays.asList(1, 2, 3))
                .put("attrs", Map.of("k", "v"))
                .put("d", new java.util.Date(86400000L * 100)).put("ts", new java.util.Date(1700000000123L))
                .put("empty", "").put("zero", 0)
                .put("schema", "sss").put("values", "vvv").put("class", "ccc").put("count", 3)
                .put("json", "{\"a\":{\"b\":[1,2]}}")
                .put("zdec", new BigDecimal("0.00")).put("eraw", ByteBuffer.wrap(new byte[0]));
    }

    static SourceRecord record(Schema keySchema, Object key, Schema schema, Object value) {
        return new SourceRecord(Map.of(), Map.of(), "top.ic", null, keySchema, key, schema, value);
    }

    public static void main(String[] arguments) throws Exception {
        String language = arguments[0];
        // What expressions print is no part of the file.
        PrintStream file = System.out;
        System.setOut(System.err);
        Struct source = new Struct(SOURCE).put("table", "t1").put("schema", "public").put("db", "dd").put("lsn", 99L);
        Struct change = new Struct(ENVELOPE).put("before", row(1, "old")).put("after", row(2, "new")).put("source", source)
                .put("op", "u").put("ts_ms", 1234L);
        Struct key = new Struct(KEY).put("id", 2);
        SourceRecord update = record(KEY, key, ENVELOPE, change);
        update.headers().addInt("n", 5).addString("s", "hs").addString("s", "hs2").add("nul", null, null);
        SourceRecord tombstone = record(KEY, key, null, null);
        SourceRecord primitive = record(null, "kk", Schema.INT32_SCHEMA, 42);
        List<String> lines = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[1]))) {
            if (line.startsWith("#") || line.isBlank()) {
                lines.add(line);
                continue;
            }
            String asked = line.split(ARROW, 2)[0];
            SourceRecord record = asked.startsWith("T:") ? tombstone : asked.startsWith("P:") ? primitive : update;
            String expression = (asked.matches("(?s)[TP]:.*") ? asked.substring(2) : asked).replace("⏎", "\n");
            lines.add(asked + ARROW + answer(language, expression, record));
        }
        file.println(String.join("\n", lines));
    }

    static String answer(String language, String expression, SourceRecord record) {
        try {
            Jsr223Engine engine = language.equals("graal.js") ? new GraalJsEngine() : new Jsr223Engine();
            engine.configure(language, expression);
            Object answer = engine.eval(record, Object.class);
            String text = answer == null ? "null" : answer.getClass().getSimpleName() + " " + answer;
            return text.replaceAll("@[0-9a-f]{6,}", "");
        }
        catch (Throwable failure) {
            return "ERR";
        }
    }
}
