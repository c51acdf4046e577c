// Writes messages of every kind to topics of a Pulsar broker, and says what its own reader gets.  SPDX-License-Identifier: Apache-2.0
//
//     java -cp ... Topics SERVICE      takes commands from standard input, answers each with one JSON line
//
// Commands, words divided by tabs:
//
//     write kind= topic=                        some messages of that kind (see `kinds`)
//     numbers topic= from= to= size= batch=     a message of `size` bytes for each number, all acknowledged when it answers;
//                                               ms= spreads them over that time, keys= gives so many keys
//     dump topic= file= compacted=              what a reader gets from the earliest on, a line of JSON for each message
//     rest topic= name= file=                   what a consumer gets that has this subscription, and acknowledges nothing
//     count topic= messages=                    the seconds that a consumer takes for so many
//     subscribe topic= name= acknowledged= holes=     a subscription that has acknowledged so many, and of the next ones each
//                                               second one, `holes` of them

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.impl.ChunkMessageIdImpl;
import org.apache.pulsar.client.impl.MessageImpl;
import org.apache.pulsar.common.api.proto.MessageMetadata;

public class Topics {
    static final ObjectMapper JSON = new ObjectMapper();
    static PulsarClient client;

    public static class Animal {
        public String name;
        public int legs;
    }

    public static class Described {
        public String name;
        public int legs;
        public String colour;
    }

    public static void main(String[] args) throws Exception {
        client = PulsarClient.builder().serviceUrl(args[0]).enableTransaction(args.length > 1).build();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split("\t");
            Map<String, String> options = new HashMap<>();
            for (int at = 1; at < words.length; at++) options.put(words[at].split("=", 2)[0], words[at].split("=", 2)[1]);
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                run(words[0], options, answer);
                answer.put("done", words[0]);
            } catch (Exception error) {
                error.printStackTrace();
                answer.put("error", error.getClass().getSimpleName());
                answer.put("code", 0);
                answer.put("message", "" + error.getMessage());
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
        client.shutdown();
        System.exit(0);
    }

    static void run(String command, Map<String, String> options, Map<String, Object> answer) throws Exception {
        String topic = options.get("topic");
        switch (command) {
            case "write" -> write(options.get("kind"), topic);
            case "numbers" -> numbers(topic, options);
            case "dump" -> answer.put("messages", dump(topic, options));
            case "rest" -> answer.put("messages", rest(topic, options));
            case "count" -> answer.put("seconds", count(topic, Integer.parseInt(options.get("messages"))));
            case "subscribe" -> subscribe(topic, options);
            default -> throw new IllegalArgumentException("no such command: " + command);
        }
    }

    static ProducerBuilder<byte[]> producer(String topic, boolean batched) {
        ProducerBuilder<byte[]> made = client.newProducer().topic(topic).producerName("p-" + topic.substring(topic.lastIndexOf('/') + 1));
        return batched
            ? made.batchingMaxMessages(7).batchingMaxPublishDelay(1, TimeUnit.HOURS).batchingMaxBytes(1 << 20)
            : made.enableBatching(false);
    }

    static byte[] body(int number, int size) {
        return String.format("%0" + size + "d", number).getBytes(StandardCharsets.UTF_8);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void write(String kind, String topic) throws Exception {
        switch (kind) {
            case "single" -> some(producer(topic, false), 9);
            case "batched" -> some(producer(topic, true), 21);
            case "by-key" -> some(producer(topic, true).batcherBuilder(BatcherBuilder.KEY_BASED), 21);
            case "lz4", "zlib", "zstd", "snappy" -> {
                CompressionType type = CompressionType.valueOf(kind.toUpperCase());
                some(producer(topic, true).compressionType(type), 14);
                some(producer(topic, false).compressionType(type), 4);
            }
            case "chunked" -> chunked(topic);
            case "encrypted" -> {
                some(producer(topic, true).addEncryptionKey("k").cryptoKeyReader(new Keys()), 14);
                some(producer(topic, false).addEncryptionKey("k").cryptoKeyReader(new Keys()).compressionType(CompressionType.LZ4), 3);
            }
            case "json" -> {
                animals(topic, Schema.JSON(Animal.class), 5);
                described(topic, Schema.JSON(Described.class), 5);
            }
            case "avro" -> {
                animals(topic, Schema.AVRO(SchemaDefinition.<Animal>builder().withPojo(Animal.class).build()), 5);
                described(topic, Schema.AVRO(SchemaDefinition.<Described>builder().withPojo(Described.class).build()), 5);
            }
            case "transactions" -> transactions(topic);
            case "partitioned" -> {
                try (Producer<byte[]> made = producer(topic, false).create()) {
                    for (int number = 0; number < 12; number++) made.newMessage().key("k" + number % 5).value(body(number, 20)).send();
                }
            }
            default -> throw new IllegalArgumentException("no such kind: " + kind);
        }
    }

    /** Messages with all that a message can have. */
    static void some(ProducerBuilder<byte[]> builder, int count) throws Exception {
        try (Producer<byte[]> made = builder.create()) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                TypedMessageBuilder<byte[]> message = made.newMessage();
                switch (number % 7) {
                    case 0 -> message.value(body(number, 100));
                    case 1 -> message.key("k" + number % 3).value(body(number, 10));
                    case 2 -> message.keyBytes(new byte[] {0, (byte) 255, (byte) number}).value(new byte[0]);
                    case 3 -> message.property("a", "1").property("number", "" + number).value(bytes("proper"));
                    case 4 -> message.key("k" + number % 3).value(null);
                    case 5 -> message.orderingKey(bytes("order")).eventTime(1_700_000_000_000L + number).value(bytes("ordered"));
                    default -> message.key("").property("", "").value(bytes("\u20ac".repeat(40)));
                }
                sent.add(message.sendAsync());
            }
            made.flush();
            for (CompletableFuture<?> each : sent) each.get(60, TimeUnit.SECONDS);
        }
    }

    /** Two producers' chunks between each other, small messages among them. */
    static void chunked(String topic) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        List<Producer<byte[]>> all = new ArrayList<>();
        for (String name : new String[] {"one", "two"}) {
            all.add(producer(topic, false).producerName(name).enableChunking(true).chunkMaxMessageSize(300)
                .compressionType(name.equals("two") ? CompressionType.ZLIB : CompressionType.NONE).create());
        }
        for (int number = 0; number < 4; number++) {
            for (Producer<byte[]> each : all) {
                java.util.Random dice = new java.util.Random(number);
                byte[] value = new byte[800 + number];
                dice.nextBytes(value);
                java.util.Arrays.fill(value, 0, 200, (byte) 'c');
                sent.add(each.newMessage().key("k" + number).property("n", "" + number).value(value).sendAsync());
                sent.add(each.newMessage().value(body(number, 20)).sendAsync());
            }
        }
        for (CompletableFuture<?> each : sent) each.get(60, TimeUnit.SECONDS);
        for (Producer<byte[]> each : all) each.close();
    }

    static void animals(String topic, Schema<Animal> schema, int count) throws Exception {
        try (Producer<Animal> made = client.newProducer(schema).topic(topic).producerName("a").enableBatching(false).create()) {
            for (int number = 0; number < count; number++) {
                Animal animal = new Animal();
                animal.name = "a" + number;
                animal.legs = number;
                made.newMessage().value(number == 3 ? null : animal).send();
            }
        }
    }

    static void described(String topic, Schema<Described> schema, int count) throws Exception {
        try (Producer<Described> made = client.newProducer(schema).topic(topic).producerName("d").batchingMaxPublishDelay(1, TimeUnit.HOURS).create()) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                Described animal = new Described();
                animal.name = "d" + number;
                animal.legs = -number;
                animal.colour = number == 3 ? null : "grey";
                sent.add(made.newMessage().value(animal).sendAsync());
            }
            made.flush();
            for (CompletableFuture<?> each : sent) each.get(60, TimeUnit.SECONDS);
        }
    }

    /** Some outside of transactions, in one that is committed, in one that is aborted; at last one that stays open, and some after it. */
    static void transactions(String topic) throws Exception {
        Producer<byte[]> made = producer(topic, false).sendTimeout(0, TimeUnit.SECONDS).create();
        Transaction committed = client.newTransaction().withTransactionTimeout(30, TimeUnit.MINUTES).build().get();
        Transaction aborted = client.newTransaction().withTransactionTimeout(30, TimeUnit.MINUTES).build().get();
        for (int number = 0; number < 4; number++) {
            made.newMessage().value(bytes("outside " + number)).send();
            made.newMessage(committed).value(bytes("committed " + number)).send();
            made.newMessage(aborted).value(bytes("aborted " + number)).send();
        }
        committed.commit().get();
        aborted.abort().get();
        made.newMessage().value(bytes("between")).send();
        Transaction open = client.newTransaction().withTransactionTimeout(30, TimeUnit.MINUTES).build().get();
        made.newMessage(open).value(bytes("open")).send();
        made.newMessage().value(bytes("after")).send();
    }

    static void numbers(String topic, Map<String, String> options) throws Exception {
        int from = Integer.parseInt(options.get("from")), to = Integer.parseInt(options.get("to"));
        int size = Integer.parseInt(options.getOrDefault("size", "100")), batch = Integer.parseInt(options.getOrDefault("batch", "1"));
        int keys = Integer.parseInt(options.getOrDefault("keys", "0"));
        long ms = Long.parseLong(options.getOrDefault("ms", "0"));
        ProducerBuilder<byte[]> builder = client.newProducer().topic(topic).blockIfQueueFull(true).maxPendingMessages(20_000).sendTimeout(60, TimeUnit.SECONDS);
        if (batch > 1) builder.batchingMaxMessages(batch).batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS);
        else builder.enableBatching(false);
        try (Producer<byte[]> made = builder.create()) {
            long begun = System.currentTimeMillis();
            CompletableFuture<?> last = null;
            for (int number = from; number < to; number++) {
                TypedMessageBuilder<byte[]> message = made.newMessage().value(body(number, size));
                last = (keys > 0 ? message.key("k" + number % keys) : message).sendAsync();
                last.whenComplete((id, error) -> { if (error != null) error.printStackTrace(); });
                if (ms > 0 && number % 100 == 0) {
                    long due = begun + ms * (number - from) / (to - from);
                    while (System.currentTimeMillis() < due) Thread.sleep(1);
                }
            }
            made.flush();
            if (last != null) last.get(60, TimeUnit.SECONDS);
        }
    }

    static double count(String topic, int messages) throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("count-" + System.nanoTime())
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).receiverQueueSize(10_000).subscribe()) {
            long begun = System.nanoTime();
            for (int number = 0; number < messages; number++) {
                Message<byte[]> message = consumer.receive(60, TimeUnit.SECONDS);
                if (message == null) throw new IllegalStateException("no message " + number + " within 60 s");
            }
            double seconds = (System.nanoTime() - begun) / 1e9;
            consumer.unsubscribe();
            return seconds;
        }
    }

    static void subscribe(String topic, Map<String, String> options) throws Exception {
        int acknowledged = Integer.parseInt(options.get("acknowledged")), holes = Integer.parseInt(options.getOrDefault("holes", "0"));
        try (Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName(options.get("name")).enableBatchIndexAcknowledgment(true)
                .isAckReceiptEnabled(true).subscriptionType(SubscriptionType.Shared).subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            for (int number = 0; number < acknowledged; number++) consumer.acknowledge(consumer.receive(60, TimeUnit.SECONDS));
            for (int number = 0; number < 2 * holes; number++) {
                Message<byte[]> message = consumer.receive(60, TimeUnit.SECONDS);
                if (number % 2 == 1) consumer.acknowledge(message);
            }
        }
    }

    static int dump(String topic, Map<String, String> options) throws Exception {
        int found = 0;
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest)
                .readCompacted(Boolean.parseBoolean(options.getOrDefault("compacted", "false")))
                .cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME).create();
                BufferedWriter file = Files.newBufferedWriter(Paths.get(options.get("file")))) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(10, TimeUnit.SECONDS);
                if (message == null) break;
                file.write(JSON.writeValueAsString(described(message)));
                file.write("\n");
                found++;
            }
        }
        return found;
    }

    static int rest(String topic, Map<String, String> options) throws Exception {
        int found = 0;
        try (Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName(options.get("name"))
                .enableBatchIndexAcknowledgment(true).subscriptionType(SubscriptionType.Shared).subscribe();
                BufferedWriter file = Files.newBufferedWriter(Paths.get(options.get("file")))) {
            for (Message<byte[]> message; (message = consumer.receive(3, TimeUnit.SECONDS)) != null; found++) {
                file.write(JSON.writeValueAsString(described(message)));
                file.write("\n");
            }
        }
        return found;
    }

    static String hex(byte[] some) {
        return some == null ? null : HexFormat.of().formatHex(some);
    }

    static Map<String, Object> described(Message<byte[]> message) {
        MessageMetadata metadata = ((MessageImpl<byte[]>) message).getMessageBuilder();
        MessageIdAdv id = (MessageIdAdv) message.getMessageId();
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("ledger", id.getLedgerId());
        row.put("entry", id.getEntryId());
        row.put("batch", id.getBatchIndex());
        if (id instanceof ChunkMessageIdImpl chunks) {
            MessageIdAdv first = (MessageIdAdv) chunks.getFirstChunkMessageId();
            row.put("first", List.of(first.getLedgerId(), first.getEntryId()));
        }
        row.put("key", message.hasKey() ? hex(message.getKeyBytes()) : null);
        row.put("ordering_key", message.hasOrderingKey() ? hex(message.getOrderingKey()) : null);
        row.put("value", metadata.isNullValue() ? null : hex(message.getData()));
        row.put("properties", new TreeMap<>(message.getProperties()));
        row.put("publish_ms", message.getPublishTime());
        row.put("event_ms", message.getEventTime() == 0 ? null : message.getEventTime());
        row.put("producer", message.getProducerName());
        row.put("sequence_id", message.getSequenceId());
        row.put("schema_version", hex(message.getSchemaVersion()));
        row.put("encrypted", message.getEncryptionCtx().isPresent());
        row.put("index", message.getIndex().orElse(null));
        row.put("broker_publish_ms", message.getBrokerPublishTime().orElse(null));
        return row;
    }

    static class Keys implements CryptoKeyReader {
        static final KeyPair PAIR = pair();

        static KeyPair pair() {
            try {
                KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
                generator.initialize(2048);
                return generator.generateKeyPair();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }

        static EncryptionKeyInfo info(String what, byte[] encoded) {
            String text = "-----BEGIN " + what + " KEY-----\n" + Base64.getMimeEncoder(64, new byte[] {10}).encodeToString(encoded)
                + "\n-----END " + what + " KEY-----\n";
            return new EncryptionKeyInfo(bytes(text), new HashMap<>());
        }

        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return info("PUBLIC", PAIR.getPublic().getEncoded());
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return info("PRIVATE", PAIR.getPrivate().getEncoded());
        }
    }
}
