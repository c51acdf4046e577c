// A client of a Pulsar broker, with one topic.  SPDX-License-Identifier: Apache-2.0
//
//     java -cp ... Traffic SERVICE TOPIC      takes commands from standard input, answers each with one JSON line
//
// Commands, words divided by tabs:
//
//     send from= to=          a message of 100 bytes for each number, all acknowledged when it answers
//     receive from= to=       takes and acknowledges just those, in order

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

public class Traffic {
    public static void main(String[] args) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build();
        Consumer<byte[]> consumer = client.newConsumer().topic(args[1]).subscriptionName("s")
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        Producer<byte[]> producer = client.newProducer().topic(args[1]).blockIfQueueFull(true).create();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split("\t");
            Map<String, Integer> options = new HashMap<>();
            for (int at = 1; at < words.length; at++) {
                options.put(words[at].split("=")[0], Integer.valueOf(words[at].split("=")[1]));
            }
            int from = options.get("from"), to = options.get("to");
            try {
                if (words[0].equals("send")) send(producer, from, to);
                else receive(consumer, from, to);
                System.out.println("{\"done\": " + (to - from) + "}");
            } catch (Exception error) {
                String message = ("" + error.getMessage()).replaceAll("[\\\\\"\\p{Cntrl}]", " ");
                System.out.println("{\"error\": \"" + error.getClass().getSimpleName() + "\", \"code\": 0, \"message\": \"" + message + "\"}");
            }
            System.out.flush();
        }
        client.shutdown();
        System.exit(0);
    }

    static String body(int number) {
        return String.format("%0100d", number);
    }

    static void send(Producer<byte[]> producer, int from, int to) throws Exception {
        List<CompletableFuture<?>> sent = new ArrayList<>();
        for (int number = from; number < to; number++) {
            sent.add(producer.sendAsync(body(number).getBytes(StandardCharsets.UTF_8)));
        }
        for (CompletableFuture<?> each : sent) each.get(60, TimeUnit.SECONDS);
    }

    static void receive(Consumer<byte[]> consumer, int from, int to) throws Exception {
        for (int number = from; number < to; number++) {
            Message<byte[]> message = consumer.receive(60, TimeUnit.SECONDS);
            if (message == null) throw new IllegalStateException("no message " + number + " within 60 s");
            String found = new String(message.getData(), StandardCharsets.UTF_8);
            if (!found.equals(body(number))) throw new IllegalStateException("instead of " + number + ": " + found);
            consumer.acknowledge(message);
        }
    }
}
