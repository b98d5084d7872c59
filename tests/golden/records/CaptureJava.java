// Makes the golden files "java-*.bin" with Kafka's own code: the judge of every format here, and the
// only one that writes LZ4 in message format v0.
//
//   java -cp 'kafka_2.13-4.3.1/libs/*' tests/golden/records/CaptureJava.java tests/golden/records/data

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

public class CaptureJava {
    static final long T0 = 1_700_000_000_000L;

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    // The records of cases.py.
    static List<SimpleRecord> records(boolean compressed, boolean withHeaders) {
        Header[] headers = {
            new RecordHeader("h", bytes("1")), new RecordHeader("h", new byte[0]),
            new RecordHeader("n", (byte[]) null), new RecordHeader("ü", new byte[] {(byte) 0xff}),
        };
        List<SimpleRecord> records = new ArrayList<>();
        records.add(new SimpleRecord(T0, bytes("key"), bytes("value"), withHeaders ? headers : new Header[0]));
        records.add(new SimpleRecord(T0 + 5, (byte[]) null, bytes("no key")));
        records.add(new SimpleRecord(T0 + 3, bytes("tombstone"), null));
        records.add(new SimpleRecord(T0 + 7, new byte[0], new byte[0]));
        for (int i = 0; i < (compressed ? 80 : 4); i++)
            records.add(new SimpleRecord(T0 + 10, bytes("k" + i), bytes("the same again and again ".repeat(40))));
        return records;
    }

    public static void main(String[] args) throws Exception {
        for (CompressionType codec : CompressionType.values()) {
            for (byte magic = 0; magic <= 2; magic++) {
                if (codec == CompressionType.ZSTD && magic < 2)
                    continue;
                SimpleRecord[] records =
                    records(codec != CompressionType.NONE, magic == 2).toArray(new SimpleRecord[0]);
                ByteBuffer buffer = MemoryRecords.withRecords(magic, 0L, Compression.of(codec).build(),
                    TimestampType.CREATE_TIME, records).buffer();
                byte[] out = new byte[buffer.remaining()];
                buffer.get(out);
                Files.write(Path.of(args[0], "java-v" + magic + "-" + codec.name + ".bin"), out);
            }
        }
    }
}
