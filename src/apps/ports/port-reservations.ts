/**
 * Ports that the apps of this daemon declare, held against other daemons on the host: two users who install the same package
 * at the same time get different ports, even while their apps are stopped. A reservation is an abstract unix socket
 * (unix(7)): the kernel gives the name to one process and removes it with that process.
 */
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";

/** Such as `tcp/8080`. */
export type PortKey = `${"tcp" | "udp"}/${number}`;

export function keyOf({ protocol, port }: { protocol: "tcp" | "udp"; port: number }): PortKey {
  return `${protocol}/${port}`;
}

/** Each reservation is a file descriptor. Further ports are not reserved. */
const maxReservations = 512;

const namePrefix = "svc/port/";

export class PortReservations implements Disposable {
  readonly #servers = new Map<PortKey, Server>();

  /** Whether this daemon may use the port: false if another daemon has reserved it. */
  async reserve(key: PortKey): Promise<boolean> {
    if (this.#servers.has(key) || this.#servers.size >= maxReservations) return true;
    const server = createServer((socket) => socket.destroy()).unref();
    this.#servers.set(key, server);
    try {
      await once(server.listen({ path: `\0${namePrefix}${key}` }), "listening");
      return true;
    } catch {
      if (this.#servers.get(key) === server) this.#servers.delete(key);
      return false;
    }
  }

  /** Reserves these ports as far as other daemons have not, and releases all others. */
  async retain(keys: ReadonlySet<PortKey>): Promise<void> {
    for (const [key, server] of this.#servers) {
      if (keys.has(key)) continue;
      this.#servers.delete(key);
      server.close();
    }
    for (const key of keys) await this.reserve(key);
  }

  /** The ports that other daemons have reserved. */
  async others(): Promise<Set<PortKey>> {
    const table = await readFile("/proc/net/unix", "latin1").catch(() => "");
    const names = table.matchAll(/ @svc\/port\/((?:tcp|udp)\/\d+)$/gm);
    return new Set([...names].map(([, key]) => key as PortKey).filter((key) => !this.#servers.has(key)));
  }

  [Symbol.dispose](): void {
    for (const server of this.#servers.values()) server.close();
    this.#servers.clear();
  }
}
