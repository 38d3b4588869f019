/** Another client, which must not notice the attack. */
import { Agent, request } from "node:http";
import { setTimeout as wait } from "node:timers/promises";
import type { TestDaemon } from "../support/daemon.ts";

/** Loopback addresses: limits count by address. */
export const addresses = { client: "127.0.0.2", attackers: ["127.0.0.3", "127.0.0.4", "127.0.0.5"] } as const;

const pauseMs = 5;

/** The 99th percentile of its `GET /v1/status`, in milliseconds, while `attack` ran. */
export async function p99During(daemon: TestDaemon, attack: () => Promise<void>): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const timesMs: number[] = [];
  const over = new AbortController();
  const probing = (async () => {
    while (!over.signal.aborted) {
      const startMs = performance.now();
      const status = await getStatus(daemon, agent);
      if (status !== 200) throw new Error(`GET /v1/status returned ${status}`);
      timesMs.push(performance.now() - startMs);
      await wait(pauseMs);
    }
  })();
  try {
    await Promise.race([attack(), probing]);
  } finally {
    over.abort();
    await probing.finally(() => agent.destroy());
  }
  timesMs.sort((left, right) => left - right);
  return timesMs[Math.floor(timesMs.length * 0.99)] ?? Number.POSITIVE_INFINITY;
}

/**
 * Sent again, as HTTP clients do, if a reused connection had just been closed (RFC 9112, 9.3.1): all of loopback is one
 * address, so connections of the attackers may displace it while it is idle.
 */
function getStatus(daemon: TestDaemon, agent: Agent, isAgain = false): Promise<number> {
  const { port, token } = daemon;
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}` };
    const localAddress = addresses.client;
    const asked = request(
      { host: "127.0.0.1", port, path: "/v1/status", agent, headers, localAddress },
      (response) => {
        response.resume().on("end", () => resolve(response.statusCode ?? 0));
      },
    );
    asked
      .on("error", (error: NodeJS.ErrnoException) => {
        if (isAgain || !asked.reusedSocket || error.code !== "ECONNRESET") reject(error);
        else resolve(getStatus(daemon, agent, true));
      })
      .end();
  });
}
