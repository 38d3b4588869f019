/** Reads an HTTP/1.1 answer (RFC 9112) from the bytes of a connection that serves one request. */
import { SvcError } from "../../errors.ts";

const maxHeadBytes = 64 * 1024;
const headEnd = Buffer.from("\r\n\r\n");

type State =
  | { readonly at: "head" }
  /** `left`: bytes to come; Infinity for a body that the end of the connection ends. */
  | { readonly at: "body"; left: number }
  | { readonly at: "chunk-size" }
  | { readonly at: "chunk"; left: number }
  | { readonly at: "chunk-end" }
  | { readonly at: "trailer" }
  | { readonly at: "done" };

export class AnswerParser {
  #state: State = { at: "head" };
  #pending: Buffer = Buffer.alloc(0);
  #status: number | undefined;

  /** Undefined until the head is complete. */
  get status(): number | undefined {
    return this.#status;
  }

  get isDone(): boolean {
    return this.#state.at === "done";
  }

  /** Takes bytes, wherever they were cut. @returns the body's bytes in them @throws SvcError for what is no HTTP */
  write(bytes: Buffer): Buffer[] {
    this.#pending = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    const body: Buffer[] = [];
    while (this.#step(body));
    return body;
  }

  /** The connection has ended. @throws SvcError when the answer is not complete */
  end(): void {
    if (this.#state.at === "body" && this.#state.left === Infinity) this.#state = { at: "done" };
    if (!this.isDone) throw new SvcError("unavailable", "the daemon's answer broke off");
  }

  /** @returns whether it got any further */
  #step(body: Buffer[]): boolean {
    const state = this.#state;
    switch (state.at) {
      case "head":
        return this.#readHead();
      case "body":
      case "chunk":
        return this.#readBody(state, body);
      case "chunk-size": {
        const line = this.#takeLine();
        if (line === undefined) return false;
        const size = /^([0-9a-f]{1,8})(?:;.*)?$/i.exec(line)?.[1];
        if (size === undefined) throw noHttp();
        const left = Number.parseInt(size, 16);
        this.#state = left === 0 ? { at: "trailer" } : { at: "chunk", left };
        return true;
      }
      case "chunk-end": {
        const line = this.#takeLine();
        if (line !== undefined && line !== "") throw noHttp();
        if (line === "") this.#state = { at: "chunk-size" };
        return line === "";
      }
      case "trailer": {
        const line = this.#takeLine();
        if (line === "") this.#state = { at: "done" };
        return line !== undefined;
      }
      case "done":
        return false;
    }
  }

  #readHead(): boolean {
    const end = this.#pending.indexOf(headEnd);
    if (end === -1) {
      if (this.#pending.length > maxHeadBytes) throw noHttp();
      return false;
    }
    const [statusLine = "", ...lines] = this.#take(end + headEnd.length)
      .toString("latin1")
      .trimEnd()
      .split("\r\n");
    const status = Number(/^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(statusLine)?.[1] ?? NaN);
    if (Number.isNaN(status)) throw noHttp();
    // 100 Continue and the like announce an answer.
    if (status < 200) return true;
    this.#status = status;
    this.#state = bodyState(status, lines);
    return true;
  }

  #readBody(state: { readonly at: "body" | "chunk"; left: number }, body: Buffer[]): boolean {
    if (this.#pending.length > 0 && state.left > 0) {
      const piece = this.#take(Math.min(state.left, this.#pending.length));
      state.left -= piece.length;
      body.push(piece);
    }
    if (state.left > 0) return false;
    this.#state = { at: state.at === "chunk" ? "chunk-end" : "done" };
    return true;
  }

  #takeLine(): string | undefined {
    const end = this.#pending.indexOf("\r\n");
    if (end === -1) {
      if (this.#pending.length > maxHeadBytes) throw noHttp();
      return undefined;
    }
    return this.#take(end + 2).toString("latin1", 0, end);
  }

  #take(length: number): Buffer {
    const taken = this.#pending.subarray(0, length);
    this.#pending = this.#pending.subarray(length);
    return taken;
  }
}

/** How the body ends (RFC 9112, section 6.3). */
function bodyState(status: number, lines: readonly string[]): State {
  const headers = new Map(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  if (status === 204 || status === 304) return { at: "done" };
  if (headers.get("transfer-encoding")?.toLowerCase() === "chunked") return { at: "chunk-size" };
  const length = headers.get("content-length");
  if (length === undefined) return { at: "body", left: Infinity };
  if (!/^\d{1,15}$/.test(length)) throw noHttp();
  return { at: "body", left: Number(length) };
}

function noHttp(): SvcError<"unavailable"> {
  return new SvcError("unavailable", "what answers there is no svc daemon: it does not speak HTTP");
}
