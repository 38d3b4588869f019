/** How many connections may be open, in all and for one peer (T 16). */
import type { Socket } from "node:net";

export class ConnectionCaps {
  readonly #max: number;
  readonly #maxPerPeer: number;
  readonly #sockets = new Set<Socket>();
  readonly #byPeer = new Map<string, number>();

  constructor(max: number, maxPerPeer: number) {
    this.#max = max;
    this.#maxPerPeer = maxPerPeer;
  }

  /**
   * Counts a connection until it closes; `false` when there are too many.
   * @param peer undefined for one that only the whole number binds
   */
  admit(socket: Socket, peer: string | undefined): boolean {
    const ofPeer = peer === undefined ? 0 : (this.#byPeer.get(peer) ?? 0);
    if (this.#sockets.size >= this.#max || ofPeer >= this.#maxPerPeer) return false;
    this.#sockets.add(socket);
    if (peer !== undefined) this.#byPeer.set(peer, ofPeer + 1);
    socket.once("close", () => {
      this.#sockets.delete(socket);
      if (peer !== undefined) this.#release(peer);
    });
    return true;
  }

  get size(): number {
    return this.#sockets.size;
  }

  destroyAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #release(peer: string): void {
    const left = (this.#byPeer.get(peer) ?? 1) - 1;
    if (left === 0) this.#byPeer.delete(peer);
    else this.#byPeer.set(peer, left);
  }
}
