/** Reads one HTTP/1.1 response (RFC 9112) from a connection that serves a single request. */
import { SvcError } from "../../errors.ts";

const maxHeadBytes = 64 * 1024;
const headEnd = Buffer.from("\r\n\r\n");

type State =
  | { readonly at: "head" }
  /** `remaining`: bytes still to read; Infinity for a body that ends with the connection. */
  | { readonly at: "body"; remaining: number }
  | { readonly at: "chunk-size" }
  | { readonly at: "chunk"; remaining: number }
  | { readonly at: "chunk-end" }
  | { readonly at: "trailer" }
  | { readonly at: "done" };

export class ResponseParser {
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

  /**
   * Accepts bytes, split anywhere.
   * @returns the bytes of the body in them
   * @throws SvcError if the bytes are not HTTP
   */
  write(bytes: Buffer): Buffer[] {
    this.#pending = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    const body: Buffer[] = [];
    while (this.#step(body));
    return body;
  }

  /** Called when the connection has ended. @throws SvcError if the response is incomplete */
  end(): void {
    if (this.#state.at === "body" && this.#state.remaining === Infinity) this.#state = { at: "done" };
    if (!this.isDone) throw new SvcError("unavailable", "the daemon's response ended early");
  }

  /** @returns whether it made progress */
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
        if (size === undefined) throw notHttpError();
        const remaining = Number.parseInt(size, 16);
        this.#state = remaining === 0 ? { at: "trailer" } : { at: "chunk", remaining };
        return true;
      }
      case "chunk-end": {
        const line = this.#takeLine();
        if (line !== undefined && line !== "") throw notHttpError();
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
      if (this.#pending.length > maxHeadBytes) throw notHttpError();
      return false;
    }
    const [statusLine = "", ...lines] = this.#take(end + headEnd.length)
      .toString("latin1")
      .trimEnd()
      .split("\r\n");
    const status = Number(/^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(statusLine)?.[1] ?? NaN);
    if (Number.isNaN(status)) throw notHttpError();
    // 100 Continue and other 1xx responses precede the real one.
    if (status < 200) return true;
    this.#status = status;
    this.#state = bodyState(status, lines);
    return true;
  }

  #readBody(state: { readonly at: "body" | "chunk"; remaining: number }, body: Buffer[]): boolean {
    if (this.#pending.length > 0 && state.remaining > 0) {
      const piece = this.#take(Math.min(state.remaining, this.#pending.length));
      state.remaining -= piece.length;
      body.push(piece);
    }
    if (state.remaining > 0) return false;
    this.#state = { at: state.at === "chunk" ? "chunk-end" : "done" };
    return true;
  }

  #takeLine(): string | undefined {
    const end = this.#pending.indexOf("\r\n");
    if (end === -1) {
      if (this.#pending.length > maxHeadBytes) throw notHttpError();
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
  if (length === undefined) return { at: "body", remaining: Infinity };
  if (!/^\d{1,15}$/.test(length)) throw notHttpError();
  return { at: "body", remaining: Number(length) };
}

function notHttpError(): SvcError<"unavailable"> {
  return new SvcError("unavailable", "the server is not an svc daemon: it does not use HTTP");
}
