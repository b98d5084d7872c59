// Kafka's own assignors, one case a line in, one assignment a line out; see test_assignors_java.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assignors {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(assign(JSON.readTree(line))));
        }
    }

    static AbstractPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    static ObjectNode assign(JsonNode asked) throws Exception {
        Map<String, Integer> topics = new HashMap<>();
        asked.get("topics").fields().forEachRemaining(e -> topics.put(e.getKey(), e.getValue().asInt()));
        Map<String, Subscription> members = new HashMap<>();
        for (JsonNode each : asked.get("members")) {
            members.put(each.get("id").asText(), subscription(each));
        }
        ObjectNode answer = JSON.createObjectNode();
        Map<String, List<PartitionInfo>> partitions = partitions(topics, asked.get("racks"));
        assignor(asked.get("assignor").asText()).assignPartitions(partitions, members).forEach((member, share) -> {
            ArrayNode listed = answer.putArray(member);
            share.forEach(each -> listed.addArray().add(each.topic()).add(each.partition()));
        });
        return answer;
    }

    static Map<String, List<PartitionInfo>> partitions(Map<String, Integer> topics, JsonNode racks) {
        Map<TopicPartition, Node[]> replicas = new HashMap<>();
        for (JsonNode each : racks) {
            Node[] nodes = new Node[each.get(2).size()];
            for (int n = 0; n < nodes.length; n++) {
                nodes[n] = new Node(n, "host", 1, each.get(2).get(n).asText());
            }
            replicas.put(new TopicPartition(each.get(0).asText(), each.get(1).asInt()), nodes);
        }
        Node[] nowhere = new Node[] {Node.noNode()};
        Map<String, List<PartitionInfo>> made = new HashMap<>();
        topics.forEach((topic, count) -> {
            List<PartitionInfo> listed = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                Node[] nodes = replicas.getOrDefault(new TopicPartition(topic, n), nowhere);
                listed.add(new PartitionInfo(topic, n, nodes[0], nodes, nodes));
            }
            made.put(topic, listed);
        });
        return made;
    }

    static Subscription subscription(JsonNode member) throws Exception {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(each -> topics.add(each.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        member.get("owned").forEach(
                each -> owned.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt())));
        JsonNode data = member.get("user_data");
        ByteBuffer userData = data.isNull() ? null : ByteBuffer.wrap(data.binaryValue());
        int generation = member.get("generation").asInt();
        JsonNode rack = member.get("rack");
        Optional<String> rackId = rack.isNull() ? Optional.empty() : Optional.of(rack.asText());
        Subscription made = new Subscription(topics, userData, owned, generation, rackId);
        JsonNode instance = member.get("instance");
        made.setGroupInstanceId(instance.isNull() ? Optional.empty() : Optional.of(instance.asText()));
        return made;
    }
}
