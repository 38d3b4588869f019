/** How many requests of each HTTP/1.1 connection are under way: node reads on, however many wait for their answer. */
import type { Socket } from "node:net";

export class PipelinedRequests {
  readonly #max: number;
  readonly #bySocket = new Map<Socket, number>();

  constructor(max: number) {
    this.#max = max;
  }

  /** Counts a request until it leaves; `false` when there are too many, which counts as well. */
  enter(socket: Socket): boolean {
    const underWay = (this.#bySocket.get(socket) ?? 0) + 1;
    this.#bySocket.set(socket, underWay);
    return underWay <= this.#max;
  }

  leave(socket: Socket): void {
    const left = (this.#bySocket.get(socket) ?? 1) - 1;
    if (left === 0) this.#bySocket.delete(socket);
    else this.#bySocket.set(socket, left);
  }
}
