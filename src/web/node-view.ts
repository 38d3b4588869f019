/** What this tab knows of the node, kept live by one stream of events: browsers have six connections for all tabs. */
import { signal, type ReadonlySignal } from "@preact/signals";
import { create } from "@bufbuild/protobuf";
import type { App } from "../../gen/svc/v1/app_pb.ts";
import type { GetStatusResponse } from "../../gen/svc/v1/daemon_pb.ts";
import { StreamEventsRequestSchema, type Event } from "../../gen/svc/v1/event_pb.ts";
import { isNotFound, isUnauthenticated, type Api } from "./api.ts";

export type Connection = "connecting" | "live" | "lost";

/** No daemon has it, so that the first stream begins with a `reset`: then everything is read. */
const noCursor = "000000000000-0";
/** What happens in this time is read together. */
const gatherMs = 50;
/** More apps than this are read as a list. */
const mostSingle = 8;
const firstRetryMs = 500;
const lastRetryMs = 5_000;
/** How often it is asked for a sign of life, and how long that may take. */
const pulseMs = 5_000;
const patienceMs = 5_000;

export class NodeView {
  readonly #api: Api;
  readonly #onEnd: (error: unknown) => void;
  readonly #over = new AbortController();
  readonly #apps = signal<ReadonlyMap<string, App> | undefined>(undefined);
  /** By id; undefined until they are known. */
  readonly apps: ReadonlySignal<ReadonlyMap<string, App> | undefined> = this.#apps;
  readonly #status = signal<GetStatusResponse | undefined>(undefined);
  readonly status: ReadonlySignal<GetStatusResponse | undefined> = this.#status;
  readonly #connection = signal<Connection>("connecting");
  readonly connection: ReadonlySignal<Connection> = this.#connection;
  /** Apps that changed and were not read since; undefined: everything. */
  #stale: Set<string> | undefined = new Set();
  #isReading = false;
  /** The stream is there: without it nothing that was read is live. */
  #isFollowed = false;
  /** Ends what goes over the connection now. */
  #connected = new AbortController();
  #isAsked = false;
  readonly #listeners = new Set<(event: Event) => void>();

  /** @param onEnd hears why the session is over */
  constructor(api: Api, onEnd: (error: unknown) => void) {
    this.#api = api;
    this.#onEnd = onEnd;
    void this.#follow();
    const { signal } = this.#over;
    const ask = (): void => void this.#askForLife();
    const timer = setInterval(ask, pulseMs);
    signal.addEventListener("abort", () => clearInterval(timer));
    // Whoever comes back to it wants to know at once.
    document.addEventListener("visibilitychange", ask, { signal });
  }

  /** Calls `listener` with everything that the stream tells, a `reset` among it. */
  listen(listener: (event: Event) => void): Disposable {
    const entry = (event: Event): void => listener(event);
    this.#listeners.add(entry);
    return { [Symbol.dispose]: () => void this.#listeners.delete(entry) };
  }

  /** Nothing is read any more either: what waits would be refused once the session is over. */
  close(): void {
    this.#over.abort();
    this.#api.dropReads();
  }

  /** Ends with the session: what breaks otherwise is begun again. */
  async #follow(): Promise<void> {
    let retryMs = firstRetryMs;
    let after = noCursor;
    while (!this.#isOver()) {
      const connected = new AbortController();
      this.#connected = connected;
      const signal = this.#untilLost();
      // A stream tells something at once: a connection that hangs does not, although others may go.
      const late = setTimeout(() => connected.abort(), patienceMs);
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
      await new Promise((resolve) => setTimeout(resolve, retryMs));
      retryMs = Math.min(2 * retryMs, lastRetryMs);
    }
  }

  /** A machine that slept, a tunnel that is stuck and a daemon that hangs end no stream: it would look live for ever. */
  async #askForLife(): Promise<void> {
    if (document.hidden || this.#isAsked) return;
    this.#isAsked = true;
    const connected = this.#connected;
    try {
      await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(patienceMs) });
    } catch {
      connected.abort();
      this.#api.dropReads();
    } finally {
      this.#isAsked = false;
    }
  }

  #take({ kind, appId }: Event): void {
    // The daemon is there again; what was not read while it was not is still stale.
    if (kind === "begin" && this.#stale?.size === 0) {
      this.#connection.value = "live";
      return;
    }
    if (kind === "app.removed" && this.#apps.value !== undefined) {
      this.#apps.value = new Map([...this.#apps.value].filter(([id]) => id !== appId));
      this.#stale?.delete(appId);
      return;
    }
    if (kind === "reset" || kind.startsWith("alert.")) this.#stale = undefined;
    else if (appId !== "") this.#stale?.add(appId);
    else if (kind !== "begin") return;
    if (!this.#isReading) void this.#read();
  }

  /** Until nothing is stale. */
  async #read(): Promise<void> {
    this.#isReading = true;
    try {
      for (;;) {
        // Whoever sees nothing yet waits for nothing.
        if (this.#apps.value !== undefined) await new Promise((resolve) => setTimeout(resolve, gatherMs));
        const stale = this.#stale;
        if (this.#isOver() || stale?.size === 0) return;
        this.#stale = new Set();
        await (stale === undefined || stale.size > mostSingle ? this.#readAll() : this.#readSome(stale));
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
    this.#apps.value = apps;
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
    this.#apps.value = apps;
  }
}
