/** How many connections may be open, in all and for one peer (T 16). */
import type { Socket } from "node:net";
import { Tally } from "../lib/tally.ts";

export class ConnectionCaps {
  readonly #max: number;
  readonly #maxPerPeer: number;
  readonly #sockets = new Set<Socket>();
  readonly #byPeer = new Tally<string>();

  constructor(max: number, maxPerPeer: number) {
    this.#max = max;
    this.#maxPerPeer = maxPerPeer;
  }

  /**
   * Counts a connection until it closes; `false` when there are too many.
   * @param peer undefined for one that only the whole number binds
   */
  admit(socket: Socket, peer: string | undefined): boolean {
    const ofPeer = peer === undefined ? 0 : this.#byPeer.of(peer);
    if (this.#sockets.size >= this.#max || ofPeer >= this.#maxPerPeer) return false;
    this.#sockets.add(socket);
    if (peer !== undefined) this.#byPeer.change(peer, 1);
    socket.once("close", () => {
      this.#sockets.delete(socket);
      if (peer !== undefined) this.#byPeer.change(peer, -1);
    });
    return true;
  }

  get size(): number {
    return this.#sockets.size;
  }

  destroyAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}
