// Clients of a RocketMQ broker, and its store module alone.  SPDX-License-Identifier: Apache-2.0
//
//     java -cp ... RocketMQ key=value ...     takes commands from standard input, answers each with one JSON line
//
// Commands, words divided by tabs; the words of the command line are the defaults of each.  An answer is {"said": [...]},
// or {"error": class, "code": 0, "message": ...}.
//
// Clients; each has namesrv= and, where it sends, broker= (its name)
//
//     topic topic= queues= address= [type=BatchCQ]   makes it in the broker of the address
//     send topic= queues= from= count= size=         message n has the key `key<n>`, a tag of three, a body by its number
//     scenario topic= [inner=]                       one of everything that a client can make
//     take topic= group= quiet= [back=]              pushed to a consumer until nothing came for so many ms; the first
//                                                    `back` ones are sent back
//     pull topic=                                    all that the broker has, queue by queue, with its range
//     query topic= keys=a,b [begin= end= max=]       by key;  view topic= ids=a,b: by message id
//     decode records=hex,hex                         needs no broker
//     master broker=                                 the address of its master
//     load topic= count= size= calls=                messages of all queues, so many under way: rate, and ms of one
//     busy topic=                                    one message after the other, until `resumed` has seen that one was
//                                                    acknowledged that was begun after its call
//
// The store module
//
//     open dir= ...                                  DefaultMessageStore; any property of its configuration
//     do words=...                                   settle, get, read, range, time, query, put, batch, clean: see `one`
//     close

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class RocketMQ {
    static Map<String, String> options = new HashMap<>();
    static List<Object> said = new ArrayList<>();
    static DefaultMessageStore store;
    static Thread busy;
    static volatile boolean ended;
    static volatile long acknowledged; // when the last acknowledged message of `busy` was begun

    static String option(String name, String otherwise) {
        return options.getOrDefault(name, otherwise);
    }

    static int number(String name, int otherwise) {
        return Integer.parseInt(option(name, String.valueOf(otherwise)));
    }

    public static void main(String[] defaults) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split("\t");
            options = new HashMap<>();
            said = new ArrayList<>();
            for (List<String> pairs : Arrays.asList(Arrays.asList(defaults), Arrays.asList(words).subList(1, words.length))) {
                for (String pair : pairs) {
                    options.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
                }
            }
            Map<String, Object> answer;
            try {
                run(words[0]);
                answer = map("said", said);
            } catch (Throwable e) {
                e.printStackTrace();
                answer = map("error", e.getClass().getSimpleName(), "code", 0, "message", String.valueOf(e.getMessage()).split("\n")[0]);
            }
            System.out.println(json(answer));
            System.out.flush();
        }
        if (store != null) {
            store.shutdown();
        }
        System.exit(0);
    }

    static void run(String command) throws Exception {
        switch (command) {
            case "topic": topic(); break;
            case "send": send(); break;
            case "master": master(); break;
            case "load": load(); break;
            case "busy": busy(); break;
            case "resumed": resumed(); break;
            case "scenario": scenario(); break;
            case "take": take(); break;
            case "pull": pull(); break;
            case "query": query(); break;
            case "view": view(); break;
            case "decode": decode(); break;
            case "open": open(); break;
            case "do": one(option("words", "").split(" ")); break;
            case "close": store.shutdown(); store = null; break;
            default: throw new IllegalArgumentException(command);
        }
    }

    // JSON, as little as is needed

    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((String) pairs[i], pairs[i + 1]);
        }
        return map;
    }

    static void say(Object... pairs) {
        said.add(map(pairs));
    }

    static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        StringBuilder out = new StringBuilder();
        if (value instanceof Map) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(out.length() == 0 ? "" : ",").append(json(String.valueOf(entry.getKey()))).append(":").append(json(entry.getValue()));
            }
            return "{" + out + "}";
        }
        if (value instanceof Collection) {
            for (Object one : (Collection<?>) value) {
                out.append(out.length() == 0 ? "" : ",").append(json(one));
            }
            return "[" + out + "]";
        }
        for (char c : String.valueOf(value).toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 32 || c > 126) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return "\"" + out + "\"";
    }

    static byte[] bytes(String hex) {
        byte[] out = new byte[hex.length() / 2];
        for (int i = 0; i < out.length; i++) {
            out[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return out;
    }

    static String sha1(byte[] body) throws Exception {
        StringBuilder out = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-1").digest(body == null ? new byte[0] : body)) {
            out.append(String.format("%02x", b));
        }
        return out.toString();
    }

    static Map<String, Object> fields(MessageExt m) throws Exception {
        return m == null ? null : map("topic", m.getTopic(), "queue", m.getQueueId(), "queue_offset", m.getQueueOffset(), "offset", m.getCommitLogOffset(),
            "size", m.getStoreSize(), "body_crc", m.getBodyCRC(), "body_length", m.getBody() == null ? 0 : m.getBody().length, "body_sha1", sha1(m.getBody()),
            "flag", m.getFlag(), "sys_flag", m.getSysFlag(), "born_ms", m.getBornTimestamp(), "born_host", String.valueOf(m.getBornHost()),
            "store_ms", m.getStoreTimestamp(), "store_host", String.valueOf(m.getStoreHost()), "reconsume", m.getReconsumeTimes(),
            "prepared", m.getPreparedTransactionOffset(), "id", m.getMsgId(),
            "properties", m.getProperties() == null ? new TreeMap<>() : new TreeMap<>(m.getProperties()));
    }

    // Clients

    static <P extends DefaultMQProducer> P producer(P producer) throws Exception {
        producer.setNamesrvAddr(option("namesrv", null));
        producer.setSendMsgTimeout(10000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setCompressMsgBodyOverHowmuch(4000000);
        producer.start();
        for (String topic : new String[] {option("topic", "T"), option("inner", null)}) {
            for (int tries = 0; topic != null && tries < 40; tries++) {
                try {
                    if (!producer.fetchPublishMessageQueues(topic).isEmpty()) {
                        break;
                    }
                } catch (Exception notYet) {
                    Thread.sleep(500);
                }
            }
        }
        return producer;
    }

    static DefaultMQPullConsumer puller() throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer("readers");
        puller.setNamesrvAddr(option("namesrv", null));
        puller.start();
        for (int tries = 0; tries < 40; tries++) {
            try {
                puller.fetchSubscribeMessageQueues(option("topic", "T"));
                break;
            } catch (Exception notYet) {
                Thread.sleep(500);
            }
        }
        return puller;
    }

    static void topic() throws Exception {
        TopicConfig config = new TopicConfig(option("topic", "T"));
        config.setReadQueueNums(number("queues", 2));
        config.setWriteQueueNums(number("queues", 2));
        if (options.containsKey("type")) {
            config.getAttributes().put("+queue.type", option("type", null));
        }
        DefaultMQAdminExt admin = new DefaultMQAdminExt(10000);
        admin.setNamesrvAddr(option("namesrv", null));
        admin.start();
        try {
            admin.createAndUpdateTopicConfig(option("address", null), config);
        } finally {
            admin.shutdown();
        }
    }

    static byte[] filled(int size, int seed) {
        byte[] out = new byte[size];
        new Random(seed).nextBytes(out);
        return out;
    }

    static Message message(String tags, String keys, String body) {
        return new Message(option("topic", "T"), tags, keys, body.getBytes(StandardCharsets.UTF_8));
    }

    static void sent(String what, Message m, SendResult result) throws Exception {
        say("what", what, "topic", m.getTopic(), "queue", result.getMessageQueue() == null ? null : result.getMessageQueue().getQueueId(),
            "queue_offset", result.getQueueOffset(), "status", String.valueOf(result.getSendStatus()), "unique_id", result.getMsgId(),
            "id", result.getOffsetMsgId(), "keys", m.getKeys(), "body_length", m.getBody().length, "body_sha1", sha1(m.getBody()));
    }

    static void send() throws Exception {
        DefaultMQProducer producer = producer(new DefaultMQProducer("writers"));
        int from = number("from", 0);
        try {
            for (int n = from; n < from + number("count", 10); n++) {
                Message m = new Message(option("topic", "T"), "tag" + n % 3, "key" + n, filled(number("size", 100), n));
                try {
                    sent("send", m, producer.send(m, new MessageQueue(m.getTopic(), option("broker", "a"), n % number("queues", 2))));
                } catch (Exception e) {
                    say("n", n, "error", String.valueOf(e.getMessage()).split("\n")[0]);
                    break;
                }
            }
        } finally {
            producer.shutdown();
        }
    }

    static void master() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(10000);
        admin.setNamesrvAddr(option("namesrv", null));
        admin.start();
        try {
            say("address", admin.examineBrokerClusterInfo().getBrokerAddrTable().get(option("broker", "a")).getBrokerAddrs().get(0L));
        } finally {
            admin.shutdown();
        }
    }

    static void load() throws Exception {
        DefaultMQProducer producer = producer(new DefaultMQProducer("loaders"));
        int count = number("count", 1000);
        int size = number("size", 100);
        Semaphore room = new Semaphore(number("calls", 64));
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(option("topic", "T"));
        CountDownLatch left = new CountDownLatch(count);
        AtomicInteger failed = new AtomicInteger();
        double[] taken = new double[count];
        byte[] body = new byte[size];
        long begun = System.nanoTime();
        for (int n = 0; n < count; n++) {
            int number = n;
            room.acquire();
            long sent = System.nanoTime();
            producer.send(new Message(option("topic", "T"), "tag", "key" + n, body), queues.get(n % queues.size()), new SendCallback() {
                private void ends() {
                    taken[number] = (System.nanoTime() - sent) / 1e6;
                    room.release();
                    left.countDown();
                }

                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() != SendStatus.SEND_OK) {
                        failed.incrementAndGet();
                    }
                    ends();
                }

                @Override
                public void onException(Throwable e) {
                    failed.incrementAndGet();
                    ends();
                }
            });
        }
        left.await();
        double seconds = (System.nanoTime() - begun) / 1e9;
        producer.shutdown();
        if (failed.get() > 0) {
            throw new IllegalStateException(failed.get() + " of " + count + " messages were not acknowledged");
        }
        Arrays.sort(taken);
        say("entries_per_second", count / seconds, "p50_ms", taken[count / 2], "p99_ms", taken[count * 99 / 100]);
    }

    static void busy() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("busy" + System.nanoTime());
        producer.setPollNameServerInterval(500);
        DefaultMQProducer started = producer(producer);
        started.setSendMsgTimeout(1000);
        String topic = option("topic", "T");
        ended = false;
        acknowledged = 0;
        busy = new Thread(() -> {
            while (!ended) {
                long begun = System.nanoTime();
                try {
                    if (started.send(new Message(topic, "tag", "key", new byte[100])).getSendStatus() == SendStatus.SEND_OK) {
                        acknowledged = begun;
                    }
                } catch (Exception again) {
                    LockSupport.parkNanos(10_000_000);
                }
            }
            started.shutdown();
        });
        busy.start();
        while (acknowledged == 0) {
            Thread.sleep(1);
        }
    }

    static void resumed() throws Exception {
        long since = System.nanoTime();
        while (acknowledged - since < 0) {
            Thread.sleep(1);
        }
        ended = true;
        busy.join();
    }

    static void scenario() throws Exception {
        MessageQueue zero = new MessageQueue(option("topic", "T"), option("broker", "a"), 0);
        MessageQueue one = new MessageQueue(option("topic", "T"), option("broker", "a"), 1);
        DefaultMQProducer producer = producer(new DefaultMQProducer("writers"));
        Message m = message("TagA", "k1", "hi");
        sent("plain", m, producer.send(m, zero));
        m = message(null, null, "no tags, no keys");
        sent("bare", m, producer.send(m, one));
        m = message("TagB", "k1 k2  k3", "several keys");
        m.putUserProperty("who", "\u00e4\u4e2d");
        m.setFlag(7);
        sent("keys", m, producer.send(m, zero));
        m = message("\u00e4\u4e2d\ud83d\ude00", "Aa", "tags beyond ASCII");
        sent("unicode", m, producer.send(m, zero));
        m = message("polygenelubricants", "BB", "hash of tags is the smallest int, key BB collides with Aa");
        sent("hash", m, producer.send(m, zero));
        m = new Message(option("topic", "T"), "big", "large", filled(20000, 1));
        sent("large", m, producer.send(m, one));
        producer.setCompressMsgBodyOverHowmuch(1000);
        for (String type : new String[] {"ZLIB", "LZ4", "ZSTD"}) {
            producer.setCompressType(CompressionType.of(type));
            m = message("zip", type, new String(new char[5000]).replace('\0', 'z'));
            sent(type, m, producer.send(m, zero));
        }
        producer.setCompressMsgBodyOverHowmuch(4000000);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            batch.add(message("batch", "b" + i, "batch message " + i));
        }
        SendResult result = producer.send(batch, zero);
        say("what", "batch", "topic", zero.getTopic(), "queue", 0, "queue_offset", result.getQueueOffset(), "id", result.getOffsetMsgId(), "count", 5);
        m = message("delay", "d1", "after a second");
        m.setDelayTimeLevel(1);
        sent("delay", m, producer.send(m, zero));
        m = message("timer", "d2", "after two seconds, by the wheel");
        m.setDelayTimeMs(2000);
        sent("timer", m, producer.send(m, zero));
        if (options.containsKey("inner")) {
            batch = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                batch.add(new Message(option("inner", null), "inner", "i" + i, ("inner batch message " + i).getBytes(StandardCharsets.UTF_8)));
            }
            result = producer.send(batch, new MessageQueue(option("inner", null), option("broker", "a"), 0));
            say("what", "inner", "topic", option("inner", null), "queue", 0, "queue_offset", result.getQueueOffset(), "id", result.getOffsetMsgId(), "count", 4);
        }
        TransactionMQProducer transactions = new TransactionMQProducer("transactions");
        transactions.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object wanted) {
                return (LocalTransactionState) wanted;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer(transactions);
        for (LocalTransactionState state : LocalTransactionState.values()) {
            m = message("tx", "x" + state, "transaction " + state);
            sent("transaction " + state, m, transactions.sendMessageInTransaction(m, state));
        }
        transactions.shutdown();
        producer.shutdown();
    }

    static void take() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(option("group", "again"));
        consumer.setNamesrvAddr(option("namesrv", null));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(option("topic", "T"), "*");
        LinkedBlockingQueue<Map<String, Object>> seen = new LinkedBlockingQueue<>();
        int[] back = {number("back", 0)};
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            for (MessageExt m : messages) {
                try {
                    seen.add(fields(m));
                } catch (Exception e) {
                    throw new RuntimeException(e);
                }
            }
            synchronized (back) {
                return back[0]-- > 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
        });
        consumer.start();
        for (Map<String, Object> one; (one = seen.poll(number("quiet", 5000), TimeUnit.MILLISECONDS)) != null; ) {
            said.add(one);
        }
        consumer.shutdown();
    }

    static void pull() throws Exception {
        DefaultMQPullConsumer puller = puller();
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(option("topic", "T"))) {
            long at = puller.minOffset(queue);
            long end = puller.maxOffset(queue);
            List<Object> messages = new ArrayList<>();
            say("queue", queue.getQueueId(), "min", at, "max", end, "messages", messages);
            while (at < end) {
                PullResult result = puller.pull(queue, "*", at, 32, 10000);
                for (MessageExt m : result.getMsgFoundList() == null ? new ArrayList<MessageExt>() : result.getMsgFoundList()) {
                    messages.add(fields(m));
                }
                if (result.getNextBeginOffset() <= at) {
                    throw new IllegalStateException(queue + " stays at " + at + ": " + result.getPullStatus());
                }
                at = result.getNextBeginOffset();
            }
        }
        puller.shutdown();
    }

    static void query() throws Exception {
        DefaultMQPullConsumer puller = puller();
        for (String key : option("keys", "").split(",")) {
            List<Object> found = new ArrayList<>();
            try {
                for (MessageExt m : puller.queryMessage(option("topic", "T"), key, number("max", 64), Long.parseLong(option("begin", "0")),
                    Long.parseLong(option("end", String.valueOf(Long.MAX_VALUE)))).getMessageList()) {
                    found.add(fields(m));
                }
                say("key", key, "found", found);
            } catch (Exception e) {
                say("key", key, "error", String.valueOf(e.getMessage()).split("\n")[0]);
            }
        }
        puller.shutdown();
    }

    static void view() throws Exception {
        DefaultMQPullConsumer puller = puller();
        for (String id : option("ids", "").split(",")) {
            try {
                say("id", id, "found", fields(puller.viewMessage(option("topic", "T"), id)));
            } catch (Exception e) {
                say("id", id, "error", String.valueOf(e.getMessage()).split("\n")[0]);
            }
        }
        puller.shutdown();
    }

    static void decode() throws Exception {
        for (String record : option("records", "").split(",")) {
            said.add(fields(MessageDecoder.decode(ByteBuffer.wrap(bytes(record)), true, false, false, true, true)));
        }
    }

    // The store module alone

    static Object convert(Class<?> type, String value) {
        return type == int.class ? (Object) Integer.parseInt(value) : type == long.class ? (Object) Long.parseLong(value)
            : type == boolean.class ? (Object) Boolean.parseBoolean(value) : type == FlushDiskType.class ? FlushDiskType.valueOf(value) : value;
    }

    static void open() throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(option("dir", null));
        config.setStorePathCommitLog(option("dir", null) + "/commitlog");
        config.setHaListenPort(0);
        for (Map.Entry<String, String> entry : options.entrySet()) {
            for (java.lang.reflect.Method method : MessageStoreConfig.class.getMethods()) {
                if (method.getName().equalsIgnoreCase("set" + entry.getKey()) && method.getParameterCount() == 1) {
                    method.invoke(config, convert(method.getParameterTypes()[0], entry.getValue()));
                }
            }
        }
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerName("a");
        store = new DefaultMessageStore(config, new BrokerStatsManager("c", false), (a, b, c, d, e, f, g) -> { }, broker, new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store does not load: its log is below the home of this process");
        }
        say("max", store.getMaxPhyOffset(), "min", store.getMinPhyOffset());
        store.start();
    }

    /**
     * settle MS | get OFFSET | read TOPIC QUEUE POSITION MAX | range TOPIC QUEUE | time TOPIC QUEUE MS LOWER/UPPER |
     * query TOPIC KEY MAX BEGIN END | put TOPIC QUEUE SIZE [name=value ...] | batch TOPIC QUEUE SIZE,SIZE,... | clean
     */
    static void one(String[] w) throws Exception {
        switch (w[0]) {
            case "settle":
                for (int i = 0; i < 200 && store.dispatchBehindBytes() > 0; i++) {
                    Thread.sleep(20);
                }
                Thread.sleep(Long.parseLong(w[1]));
                say("behind", store.dispatchBehindBytes(), "max", store.getMaxPhyOffset(), "min", store.getMinPhyOffset());
                break;
            case "get":
                say("message", fields(store.lookMessageByOffset(Long.parseLong(w[1]))));
                break;
            case "read": {
                GetMessageResult r = store.getMessage("g", w[1], Integer.parseInt(w[2]), Long.parseLong(w[3]), Integer.parseInt(w[4]), null);
                List<Object> found = new ArrayList<>();
                for (ByteBuffer buffer : r.getMessageBufferList() == null ? new ArrayList<ByteBuffer>() : r.getMessageBufferList()) {
                    MessageExt m = MessageDecoder.decode(buffer, true, false);
                    found.add(m == null ? null : Arrays.asList(m.getQueueOffset(), m.getCommitLogOffset(), m.getStoreSize()));
                }
                say("status", String.valueOf(r.getStatus()), "next", r.getNextBeginOffset(), "min", r.getMinOffset(), "max", r.getMaxOffset(),
                    "positions", r.getMessageQueueOffset(), "found", found);
                r.release();
                break;
            }
            case "range":
                say("min", store.getMinOffsetInQueue(w[1], Integer.parseInt(w[2])), "max", store.getMaxOffsetInQueue(w[1], Integer.parseInt(w[2])));
                break;
            case "time":
                say("position", store.getOffsetInQueueByTime(w[1], Integer.parseInt(w[2]), Long.parseLong(w[3]), BoundaryType.valueOf(w[4])));
                break;
            case "query": {
                QueryMessageResult r = store.queryMessage(w[1], w[2], Integer.parseInt(w[3]), Long.parseLong(w[4]), Long.parseLong(w[5]));
                for (ByteBuffer buffer : r.getMessageBufferList()) {
                    MessageExt m = MessageDecoder.decode(buffer, true, false);
                    said.add(Arrays.asList(m.getCommitLogOffset(), m.getTopic(), m.getQueueOffset(), m.getStoreTimestamp()));
                }
                r.release();
                break;
            }
            case "put":
                put(store.putMessage(inner(w, filled(Integer.parseInt(w[3]), 3))));
                break;
            case "batch": {
                List<Message> list = new ArrayList<>();
                for (String size : w[3].split(",")) {
                    Message m = new Message(w[1], "b", "batch" + list.size(), filled(Integer.parseInt(size), list.size()));
                    MessageClientIDSetter.setUniqID(m);
                    list.add(m);
                }
                MessageExtBatch m = new MessageExtBatch();
                m.setTopic(w[1]);
                m.setQueueId(Integer.parseInt(w[2]));
                m.setBornTimestamp(1700000000000L);
                m.setBornHost(new InetSocketAddress("127.0.0.1", 1234));
                m.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
                m.setBody(MessageBatch.generateFromList(list).encode());
                put(store.putMessages(m));
                break;
            }
            case "clean":
                say("deleted", store.getCommitLog().deleteExpiredFile(0, 0, 0, true, 10));
                break;
            default:
                throw new IllegalArgumentException(w[0]);
        }
    }

    static void put(PutMessageResult r) {
        say("status", String.valueOf(r.getPutMessageStatus()), "append", r.getAppendMessageResult() == null ? null
            : Arrays.asList(String.valueOf(r.getAppendMessageResult().getStatus()), r.getAppendMessageResult().getWroteOffset(),
            r.getAppendMessageResult().getWroteBytes(), r.getAppendMessageResult().getLogicsOffset(), r.getAppendMessageResult().getMsgId()));
    }

    static MessageExtBrokerInner inner(String[] w, byte[] body) throws Exception {
        MessageExtBrokerInner m = new MessageExtBrokerInner();
        MessageAccessor.setProperties(m, new HashMap<>()); // the store fails without
        m.setTopic(w[1]);
        m.setQueueId(Integer.parseInt(w[2]));
        m.setBody(body);
        m.setBornTimestamp(1700000000000L);
        m.setBornHost(new InetSocketAddress("127.0.0.1", 1234));
        m.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        for (String pair : Arrays.asList(w).subList(4, w.length)) {
            String name = pair.substring(0, pair.indexOf('='));
            String value = pair.substring(pair.indexOf('=') + 1);
            switch (name) {
                case "tags": m.setTags(value); break;
                case "keys": m.setKeys(value.replace('_', ' ')); break;
                case "sys": m.setSysFlag(Integer.decode(value)); break;
                case "born6": m.setBornHost(new InetSocketAddress(value, 1234)); m.setBornHostV6Flag(); break;
                case "store6": m.setStoreHost(new InetSocketAddress(value, 10911)); m.setStoreHostAddressV6Flag(); break;
                case "prepared": m.setPreparedTransactionOffset(Long.parseLong(value)); break;
                default: MessageAccessor.putProperty(m, name, value);
            }
        }
        m.setPropertiesString(MessageDecoder.messageProperties2String(m.getProperties()));
        return m;
    }
}
