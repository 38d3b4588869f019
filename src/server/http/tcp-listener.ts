/** The TCP listener, bound at start or as soon as its address is free. */
import type { AddressInfo, Server } from "node:net";
import { addressText, listenFailure } from "../../lib/tcp-address.ts";
import type { Log } from "../../lib/log.ts";
import { listenOn } from "./socket-file.ts";

export interface TcpAddress {
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
}

export interface TcpListenerOptions {
  readonly address: TcpAddress;
  /** A descriptor that is already bound to the address. */
  readonly fd?: number | undefined;
  /** Milliseconds until the first retry, and between two retries at most. Default: {@link defaultRetryMs}. */
  readonly retryMs?: RetryDelays | undefined;
  /** Called each time the address was bound, before {@link TcpListener.open} resolves. Must not reject. */
  readonly onBound?: ((bound: TcpAddress) => Promise<void>) | undefined;
  readonly log: Pick<Log, "info" | "warn" | "error">;
}

export interface RetryDelays {
  readonly first: number;
  readonly longest: number;
}

const defaultRetryMs: RetryDelays = { first: 5_000, longest: 60_000 };

export class TcpListener implements Disposable {
  readonly #server: Server;
  readonly #options: TcpListenerOptions;
  #bound: TcpAddress | undefined;
  #failure: string | undefined;
  #isAddressMissing = false;
  #delayMs: number;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** Owns `server`, which does not listen yet. */
  constructor(server: Server, options: TcpListenerOptions) {
    this.#server = server;
    this.#options = options;
    this.#delayMs = (options.retryMs ?? defaultRetryMs).first;
  }

  /** The bound address and port, also if the configuration has a name or port 0. */
  get bound(): TcpAddress | undefined {
    return this.#bound;
  }

  /** Why the address is not bound; undefined if it is. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** The host does not have the address, so no other program can listen there either. */
  get isAddressMissing(): boolean {
    return this.#isAddressMissing;
  }

  /** Tries once. Never rejects; see {@link failure}. */
  async open(): Promise<void> {
    const { address, fd } = this.#options;
    try {
      await listenOn(this.#server, fd === undefined ? address : { fd });
    } catch (cause) {
      const { code = "unknown error" } = cause as NodeJS.ErrnoException;
      this.#failure = listenFailure(address, code);
      this.#isAddressMissing = code === "EADDRNOTAVAIL" || code === "EAFNOSUPPORT";
      return;
    }
    if (this.#isClosed) {
      this.#server.close();
      return;
    }
    this.#failure = undefined;
    this.#isAddressMissing = false;
    const { address: host, port } = this.#server.address() as AddressInfo;
    this.#bound = { host, port };
    await this.#options.onBound?.(this.#bound);
  }

  /** Retries at growing intervals until the address is bound. */
  retryUntilBound(): void {
    const { address, retryMs = defaultRetryMs, log } = this.#options;
    const retry = async (): Promise<void> => {
      await this.open();
      if (this.#bound !== undefined) log.info({ tcp: this.#bound }, "bound the TCP address");
      else if (!this.#isClosed) this.retryUntilBound();
    };
    if (this.#delayMs === retryMs.first)
      log.warn(
        { address: addressText(address), reason: this.#failure },
        "failed to bind the TCP address; serving the unix socket and retrying",
      );
    this.#timer = setTimeout(() => void retry(), this.#delayMs);
    this.#delayMs = Math.min(2 * this.#delayMs, retryMs.longest);
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#server.close();
  }
}
