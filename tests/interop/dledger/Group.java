// A member of a DLedger group, and clients of a register that such a group keeps.  SPDX-License-Identifier: Apache-2.0
//
//     java -cp ... Group member key=value ...     takes commands from standard input, answers each with one JSON line
//     java -cp ... Group clients key=value ...    reads and writes registers until standard input ends; the history goes to standard output
//
// Commands of a member, words divided by tabs:
//
//     state                                       who leads, and where its log ends
//     append size= entries= batch= calls=         as leader, by the calls of its own process; the rate and the times of the calls
//     busy                                        as leader: one record after the other, until the process ends
//     lead gone=ID                                answers when this member leads and had an append acknowledged, or another but ID leads
//
// A line of the history: {"op","client","type":"invoke|ok|fail|info","f":"read|write","key","value","time"}; `op` is the same number in both
// lines of an operation, time is in nanoseconds.  `info`: it may have been done, and may yet be.  A register is written by an entry of the log and read by the group's own linearizable read.

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.common.ReadClosure;
import io.openmessaging.storage.dledger.common.ReadMode;
import io.openmessaging.storage.dledger.common.Status;
import io.openmessaging.storage.dledger.exception.DLedgerException;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.BatchAppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineProcessor;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineRequest;
import io.openmessaging.storage.dledger.protocol.userdefine.UserDefineResponse;
import io.openmessaging.storage.dledger.snapshot.SnapshotReader;
import io.openmessaging.storage.dledger.snapshot.SnapshotWriter;
import io.openmessaging.storage.dledger.statemachine.ApplyEntry;
import io.openmessaging.storage.dledger.statemachine.ApplyEntryIterator;
import io.openmessaging.storage.dledger.statemachine.StateMachine;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

public class Group {
    static final int OK = DLedgerResponseCode.SUCCESS.getCode(), NOT_LEADER = DLedgerResponseCode.NOT_LEADER.getCode();

    static Map<String, String> options(List<String> words) {
        Map<String, String> found = new HashMap<>();
        for (String word : words) found.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
        return found;
    }

    static Map<String, Object> answer(Object... pairs) {
        Map<String, Object> made = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) made.put((String) pairs[i], pairs[i + 1]);
        return made;
    }

    static void tell(Map<String, Object> line) {
        synchronized (System.out) {
            System.out.println(JSON.toJSONString(line, SerializerFeature.WriteMapNullValue));
            System.out.flush();
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = options(Arrays.asList(args).subList(1, args.length));
        if (args[0].equals("clients")) clients(options);
        else new Group(options).serve();
        System.exit(0);
    }

    // ---- a member ------------------------------------------------------------------------------------------------

    final DLedgerServer server;
    final MemberState state;

    Group(Map<String, String> options) {
        DLedgerConfig config = new DLedgerConfig().group(options.get("group")).selfId(options.get("id")).peers(options.get("peers")).storeBaseDir(options.get("dir"));
        server = new DLedgerServer(config);
        if (options.getOrDefault("register", "no").equals("yes")) {
            server.registerStateMachine(new Registers());
            server.registerUserDefineProcessors(List.of(new Writing(server), new Reading(server)));
        }
        state = server.getMemberState();
        server.startup();
    }

    void serve() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> words = Arrays.asList(line.split("\t"));
            Map<String, String> options = options(words.subList(1, words.size()));
            try {
                tell(switch (words.get(0)) {
                    case "state" -> answer("leader", state.getLeaderId(), "leads", state.isLeader(), "term", state.currTerm(), "end", state.getLedgerEndIndex(), "committed", state.getCommittedIndex());
                    case "append" -> append(options);
                    case "busy" -> busy();
                    case "lead" -> lead(options.get("gone"));
                    default -> throw new IllegalArgumentException("no command " + words.get(0));
                });
            } catch (Exception error) {
                tell(answer("error", error.getClass().getSimpleName(), "code", 0, "message", "" + error.getMessage()));
            }
        }
    }

    CompletableFuture<AppendEntryResponse> handed(List<byte[]> bodies) throws Exception {
        AppendEntryRequest request;
        if (bodies.size() == 1) {
            request = new AppendEntryRequest();
            request.setBody(bodies.get(0));
        } else {
            BatchAppendEntryRequest batch = new BatchAppendEntryRequest();
            batch.setBatchMsgs(bodies);
            request = batch;
        }
        request.setGroup(state.getGroup());
        request.setRemoteId(state.getSelfId());
        return server.handleAppend(request);
    }

    Map<String, Object> append(Map<String, String> options) throws Exception {
        int batch = Integer.parseInt(options.get("batch")), entries = Integer.parseInt(options.get("entries")), most = Integer.parseInt(options.get("calls"));
        List<byte[]> bodies = Collections.nCopies(batch, new byte[Integer.parseInt(options.get("size"))]);
        long[] taken = new long[entries / batch];
        Semaphore room = new Semaphore(most);
        AtomicReference<String> failed = new AtomicReference<>();
        long begun = System.nanoTime();
        for (int i = 0; i < taken.length; i++) {
            room.acquire();
            int number = i;
            long at = System.nanoTime();
            handed(bodies).whenComplete((found, error) -> {
                taken[number] = System.nanoTime() - at;
                if (error != null) failed.set("" + error);
                else if (found.getCode() != OK) failed.set("code " + found.getCode());
                room.release();
            });
        }
        room.acquire(most);
        double seconds = (System.nanoTime() - begun) / 1e9;
        if (failed.get() != null) throw new IllegalStateException("an append failed: " + failed.get());
        Arrays.sort(taken);
        return answer("entries_per_second", taken.length * (double) batch / seconds, "p50_ms", taken[taken.length / 2] / 1e6, "p99_ms", taken[taken.length * 99 / 100] / 1e6);
    }

    /** Whether one record was acknowledged. */
    boolean one() throws Exception {
        return handed(List.of(new byte[100])).get().getCode() == OK;
    }

    Map<String, Object> busy() throws Exception {
        if (!one()) throw new IllegalStateException("this member does not lead");
        Thread thread = new Thread(() -> {
            try {
                while (one());
            } catch (Exception error) {
                System.err.println("busy ends: " + error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return answer();
    }

    Map<String, Object> lead(String gone) throws Exception {
        while (true) {
            if (state.isLeader() && one()) return answer("leads", true);
            String leader = state.getLeaderId();
            if (state.isFollower() && leader != null && !leader.equals(gone) && !leader.equals(state.getSelfId())) return answer("leads", false);
            Thread.sleep(1);
        }
    }

    // ---- registers -----------------------------------------------------------------------------------------------

    /** Numbers by key; an entry is the two of them, four bytes each.  Entries of another length are none of ours. */
    static class Registers implements StateMachine {
        final Map<Integer, Integer> held = new ConcurrentHashMap<>();

        @Override
        public void onApply(ApplyEntryIterator entries) {
            while (entries.hasNext()) {
                ApplyEntry<?> entry = entries.next();
                ByteBuffer body = ByteBuffer.wrap(entry.getEntry().getBody());
                if (body.remaining() == 8) held.put(body.getInt(), body.getInt());
            }
        }

        @Override
        public boolean onSnapshotSave(SnapshotWriter writer) { return false; }

        @Override
        public boolean onSnapshotLoad(SnapshotReader reader) { return false; }

        @Override
        public void onShutdown() { }

        @Override
        public void onError(DLedgerException error) { System.err.println("state machine: " + error); }

        @Override
        public String getBindDLedgerId() { return null; }
    }

    public static class Write extends UserDefineRequest {
        private int key, value;

        public int getKey() { return key; }

        public void setKey(int key) { this.key = key; }

        public int getValue() { return value; }

        public void setValue(int value) { this.value = value; }

        @Override
        public int getRequestTypeCode() { return 1; }
    }

    public static class Read extends UserDefineRequest {
        private int key;

        public int getKey() { return key; }

        public void setKey(int key) { this.key = key; }

        @Override
        public int getRequestTypeCode() { return 2; }
    }

    public static class Said extends UserDefineResponse {
        private Integer value;

        public Integer getValue() { return value; }

        public void setValue(Integer value) { this.value = value; }
    }

    static class Writing extends UserDefineProcessor<Write, Said> {
        Writing(DLedgerServer server) { super(server); }

        @Override
        public CompletableFuture<Said> handleRequest(Write request) {
            Said said = new Said();
            try {
                byte[] body = ByteBuffer.allocate(8).putInt(request.getKey()).putInt(request.getValue()).array();
                return dLedgerServer.appendAsLeader(body).handle((found, error) -> {
                    // What fails from here on was appended by this member: only the group knows whether it stays.
                    said.setCode(error == null && found.getCode() == OK ? OK : DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT.getCode());
                    return said;
                });
            } catch (DLedgerException error) {
                said.setCode(error.getCode().getCode());
                return CompletableFuture.completedFuture(said);
            }
        }

        @Override
        public Integer getRequestTypeCode() { return 1; }
    }

    static class Reading extends UserDefineProcessor<Read, Said> {
        Reading(DLedgerServer server) { super(server); }

        @Override
        public CompletableFuture<Said> handleRequest(Read request) {
            CompletableFuture<Said> future = new CompletableFuture<>();
            dLedgerServer.handleRead(ReadMode.RAFT_LOG_READ, new ReadClosure() {
                @Override
                public void done(Status status) {
                    Said said = new Said();
                    said.setCode(status.isOk() ? OK : dLedgerServer.isLeader() ? status.code.getCode() : NOT_LEADER);
                    if (status.isOk()) said.setValue(((Registers) dLedgerServer.getStateMachine()).held.get(request.getKey()));
                    future.complete(said);
                }
            });
            return future;
        }

        @Override
        public Integer getRequestTypeCode() { return 2; }
    }

    // ---- clients -------------------------------------------------------------------------------------------------

    static void clients(Map<String, String> options) throws Exception {
        int count = Integer.parseInt(options.get("clients")), keys = Integer.parseInt(options.get("keys"));
        AtomicBoolean ended = new AtomicBoolean();
        AtomicLong values = new AtomicLong();
        Thread[] threads = new Thread[count];
        for (int number = 0; number < count; number++) {
            int client = number;
            Random dice = new Random(client);
            threads[client] = new Thread(() -> {
                DLedgerClient group = new DLedgerClient(options.get("group"), options.get("peers"));
                group.startup();
                for (int turn = 0; !ended.get(); turn++) {
                    if (!asked(group, client, client + count * turn, dice.nextInt(keys), dice.nextBoolean() ? (int) values.incrementAndGet() : null)) pause();
                }
                group.shutdown();
            });
            threads[client].start();
        }
        while (System.in.read() >= 0);
        ended.set(true);
        for (Thread thread : threads) thread.join();
    }

    static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** One operation with its lines; whether it was done. */
    static boolean asked(DLedgerClient group, int client, int op, int key, Integer value) {
        String name = value == null ? "read" : "write";
        tell(answer("op", op, "client", client, "type", "invoke", "f", name, "key", key, "value", value, "time", System.nanoTime()));
        Said said;
        if (value == null) {
            Read read = new Read();
            read.setKey(key);
            said = group.invokeUserDefineRequest(read, Said.class, true);
        } else {
            Write write = new Write();
            write.setKey(key);
            write.setValue(value);
            said = group.invokeUserDefineRequest(write, Said.class, true);
        }
        int code = said == null ? -1 : said.getCode();
        boolean done = code == OK;
        // A read that failed did nothing; a write did nothing only where no member appended it.
        String type = done ? "ok" : value == null || code == NOT_LEADER || code == DLedgerResponseCode.METADATA_ERROR.getCode() ? "fail" : "info";
        tell(answer("op", op, "client", client, "type", type, "f", name, "key", key, "value", done && value == null ? said.getValue() : value, "time", System.nanoTime()));
        return done;
    }
}
