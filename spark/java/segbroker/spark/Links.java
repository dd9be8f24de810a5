package segbroker.spark;

import java.util.ArrayDeque;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The idle connections of this executor: the next task to the same broker takes one of them.
 *
 * <p>Tasks are threads here: a link is either in this map or with one task. Beyond COUNT_MAX the
 * oldest is closed. A link with a reply still on its way (a query that stopped at a LIMIT) is not kept.
 */
final class Links {
    private static final int COUNT_MAX = 16;

    private record Key(ScanTask.Address address, String clientId, ScanTask.Security security) {
        static Key of(ScanTask.Address address, ScanTask.Client client) {
            return new Key(address, client.clientId(), client.security());
        }
    }

    private static final Map<Key, ArrayDeque<Link>> IDLE = new LinkedHashMap<>();
    private static int count;

    private Links() {}

    static Link take(ScanTask.Address address, ScanTask.Client client) throws LinkError {
        Link link;
        while ((link = pop(Key.of(address, client))) != null) {
            if (link.isIdle() && !link.isHungUp()) {
                return link;
            }
            link.close();
        }
        return new Link(address, client);
    }

    static void giveBack(Link link, ScanTask.Client client) {
        if (!link.isIdle()) {
            link.close();
            return;
        }
        link.shrink();
        synchronized (IDLE) {
            if (count == COUNT_MAX) {
                pop(IDLE.keySet().iterator().next()).close();
            }
            IDLE.computeIfAbsent(Key.of(link.address, client), key -> new ArrayDeque<>()).push(link);
            count++;
        }
    }

    private static Link pop(Key key) {
        synchronized (IDLE) {
            ArrayDeque<Link> links = IDLE.get(key);
            if (links == null) {
                return null;
            }
            Link link = links.pop();
            count--;
            if (links.isEmpty()) {
                IDLE.remove(key);
            }
            return link;
        }
    }
}
