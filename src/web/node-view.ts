/** The node's state in this tab, updated by one event stream: browsers have six connections for all tabs. */
import { signal, type ReadonlySignal } from "@preact/signals";
import { create } from "@bufbuild/protobuf";
import type { App } from "../../gen/svc/v1/app_pb.ts";
import type { GetStatusResponse } from "../../gen/svc/v1/daemon_pb.ts";
import { StreamEventsRequestSchema, type Event } from "../../gen/svc/v1/event_pb.ts";
import { OperationService } from "../../gen/svc/v1/operation_pb.ts";
import { isNotFound, isUnauthenticated, type Api } from "./api.ts";
import { Operations } from "./operations.ts";

export type Connection = "connecting" | "live" | "lost";

/** A cursor that no daemon knows, so that the first stream starts with a `reset` and everything is read. */
const noCursor = "000000000000-0";
/** Milliseconds: changes within this time cause one read. */
const batchMs = 50;
/** If more apps have changed, the whole list is read. */
const maxSingleReads = 8;
const firstRetryMs = 500;
const lastRetryMs = 5_000;
/** Interval and timeout of the health probe, in milliseconds. */
const probeIntervalMs = 5_000;
const probeTimeoutMs = 5_000;

export class NodeView {
  readonly #api: Api;
  readonly #onEnd: (error: unknown) => void;
  readonly #over = new AbortController();
  readonly #apps = signal<ReadonlyMap<string, App> | undefined>(undefined);
  /** By ID; undefined before the first read. */
  readonly apps: ReadonlySignal<ReadonlyMap<string, App> | undefined> = this.#apps;
  readonly #status = signal<GetStatusResponse | undefined>(undefined);
  readonly status: ReadonlySignal<GetStatusResponse | undefined> = this.#status;
  readonly #connection = signal<Connection>("connecting");
  readonly connection: ReadonlySignal<Connection> = this.#connection;
  /** Apps that have changed since the last read; undefined: all. */
  #stale: Set<string> | undefined = new Set();
  #isReading = false;
  /** Apps that were removed during the current read, whose result may still have them. */
  readonly #removed = new Set<string>();
  /** Whether the event stream is connected; without it, data may be outdated. */
  #isFollowed = false;
  /** Aborts the calls of the current connection. */
  #connected = new AbortController();
  #isProbing = false;
  readonly #listeners = new Set<(event: Event) => void>();
  readonly operations: Operations;

  /** @param onEnd called with the reason when the session ends */
  constructor(api: Api, onEnd: (error: unknown) => void) {
    this.#api = api;
    this.#onEnd = onEnd;
    this.operations = new Operations(api.client(OperationService));
    void this.#follow();
    const { signal } = this.#over;
    const ask = (): void => void this.#probe();
    const timer = setInterval(ask, probeIntervalMs);
    signal.addEventListener("abort", () => clearInterval(timer));
    // Probes at once when the user returns to the tab.
    document.addEventListener("visibilitychange", ask, { signal });
  }

  /** Calls `listener` with every event of the stream, including `reset`. */
  listen(listener: (event: Event) => void): Disposable {
    const entry = (event: Event): void => listener(event);
    this.#listeners.add(entry);
    return { [Symbol.dispose]: () => void this.#listeners.delete(entry) };
  }

  /** Also stops reading: pending reads would fail once the session has ended. */
  close(): void {
    this.#over.abort();
    this.#api.dropReads();
  }

  /** Runs until the session ends, and reconnects after other failures. */
  async #follow(): Promise<void> {
    let retryMs = firstRetryMs;
    let after = noCursor;
    while (!this.#isOver()) {
      const connected = new AbortController();
      this.#connected = connected;
      const signal = this.#untilLost();
      // A working stream sends an event at once. A silent connection hangs, even if others work.
      const late = setTimeout(() => connected.abort(), probeTimeoutMs);
      try {
        const request = create(StreamEventsRequestSchema, { after });
        for await (const event of this.#api.events.streamEvents(request, { signal })) {
          clearTimeout(late);
          retryMs = firstRetryMs;
          after = event.cursor;
          this.#isFollowed = true;
          this.#take(event);
          for (const listener of this.#listeners) listener(event);
        }
      } catch (error) {
        if (this.#isOver()) return;
        if (isUnauthenticated(error)) {
          this.#onEnd(error);
          return;
        }
      } finally {
        clearTimeout(late);
      }
      this.#isFollowed = false;
      this.#connection.value = "lost";
      this.#api.loseConnection();
      await new Promise((resolve) => setTimeout(resolve, retryMs));
      retryMs = Math.min(2 * retryMs, lastRetryMs);
    }
  }

  /**
   * A suspended host, a stuck tunnel and an unresponsive daemon do not close the stream, so the page would
   * look live forever.
   */
  async #probe(): Promise<void> {
    if (document.hidden || this.#isProbing) return;
    this.#isProbing = true;
    const connected = this.#connected;
    try {
      await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(probeTimeoutMs) });
    } catch {
      connected.abort();
      this.#api.loseConnection();
      this.#api.dropReads();
    } finally {
      this.#isProbing = false;
    }
  }

  #take({ kind, appId }: Event): void {
    if (kind === "reset" || kind === "operation.started" || kind === "operation.finished")
      void this.operations.read(this.#over.signal);
    // The daemon responds again; apps that could not be read before are still stale.
    if (kind === "begin" && this.#stale?.size === 0) {
      this.#connection.value = "live";
      return;
    }
    if (kind === "app.removed" && this.#apps.value !== undefined) {
      this.#apps.value = new Map([...this.#apps.value].filter(([id]) => id !== appId));
      this.#stale?.delete(appId);
      this.#removed.add(appId);
      return;
    }
    if (kind === "reset" || kind.startsWith("alert.")) this.#stale = undefined;
    else if (appId !== "") this.#stale?.add(appId);
    else if (kind !== "begin") return;
    if (!this.#isReading) void this.#read();
  }

  /** Reads until nothing is stale. */
  async #read(): Promise<void> {
    this.#isReading = true;
    try {
      for (;;) {
        // The first read does not wait.
        if (this.#apps.value !== undefined) await new Promise((resolve) => setTimeout(resolve, batchMs));
        const stale = this.#stale;
        if (this.#isOver() || stale?.size === 0) return;
        this.#stale = new Set();
        this.#removed.clear();
        await (stale === undefined || stale.size > maxSingleReads ? this.#readAll() : this.#readSome(stale));
        if (this.#isFollowed) this.#connection.value = "live";
      }
    } catch (error) {
      this.#stale = undefined;
      if (this.#isOver()) return;
      if (isUnauthenticated(error)) {
        this.#onEnd(error);
        return;
      }
      this.#connection.value = "lost";
      setTimeout(() => {
        if (!this.#isReading) void this.#read();
      }, lastRetryMs);
    } finally {
      this.#isReading = false;
    }
  }

  #untilLost(): AbortSignal {
    return AbortSignal.any([this.#over.signal, this.#connected.signal]);
  }

  #isOver(): boolean {
    return this.#over.signal.aborted;
  }

  async #readAll(): Promise<void> {
    const signal = this.#untilLost();
    const [apps, status] = await Promise.all([
      this.#everyApp(signal),
      this.#api.daemon.getStatus({}, { signal }),
    ]);
    this.#status.value = status;
    this.#show(apps);
  }

  async #everyApp(signal: AbortSignal): Promise<Map<string, App>> {
    const found = new Map<string, App>();
    let pageToken = "";
    do {
      const page = await this.#api.apps.listApps({ pageToken }, { signal });
      for (const app of page.apps) found.set(app.id, app);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    return found;
  }

  async #readSome(ids: ReadonlySet<string>): Promise<void> {
    const signal = this.#untilLost();
    const read = async (id: string): Promise<[string, App | undefined]> => {
      try {
        return [id, await this.#api.apps.getApp({ id }, { signal })];
      } catch (error) {
        if (isNotFound(error)) return [id, undefined];
        throw error;
      }
    };
    const apps = new Map(this.#apps.value);
    for (const [id, app] of await Promise.all([...ids].map(read))) {
      if (app === undefined) apps.delete(id);
      else apps.set(id, app);
    }
    this.#show(apps);
  }

  #show(apps: ReadonlyMap<string, App>): void {
    this.#apps.value = new Map([...apps].filter(([id]) => !this.#removed.has(id)));
  }
}
