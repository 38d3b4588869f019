/** All containers of the engine, kept right by its events. */
import { mapBounded } from "../lib/map-bounded.ts";
import { unlessAborted } from "../lib/unless-aborted.ts";
import { containerFacts, type ContainerFacts, type ContainerRecord } from "./container-record.ts";
import { unlessGone } from "./engine-errors.ts";
import type { DockerEngine } from "./engine.ts";
import type { EngineEvent } from "./event-stream.ts";
import { statusLine } from "./status-line.ts";

/** Those that change what a record tells; checks of health and commands in containers make many others. */
const changes = new Set([
  "create",
  "start",
  "restart",
  "die",
  "stop",
  "oom",
  "pause",
  "unpause",
  "rename",
  "update",
  "destroy",
]);

/** So many containers are asked about at once: the engine answers others beside. */
const maxInspects = 8;

export interface ContainerList {
  /** Another number whenever a container or its status line is another one, and only then. */
  readonly revision: number;
  /** By name. */
  readonly containers: readonly ContainerRecord[];
}

export interface ContainerCacheOptions {
  engine: DockerEngine;
  /** Unix milliseconds. */
  now: () => number;
  nextRevision: () => number;
  /** Called with the ids of containers that are other ones, or gone. */
  onChange: (ids: ReadonlySet<string>) => void;
  /** Called when the engine could not say what has become of a container. */
  onError: (error: unknown) => void;
}

export class ContainerCache {
  readonly #options: ContainerCacheOptions;
  readonly #records = new Map<string, ContainerRecord>();
  /** Containers with events that nobody has asked about yet, by id, with the time of the first of them. */
  readonly #dirty = new Map<string, number>();
  /** Those that are asked about because of events, with the time of the first of these. */
  readonly #asked = new Map<string, number>();
  /** Questions and ends of containers are numbered as they come. */
  #sequence = 0;
  /** The number of each container's end or last applied answer: an answer to an older question is thrown away. */
  readonly #known = new Map<string, number>();
  #questions = 0;
  /** Grows when a question fails: all is asked for anew then, and what else fails with it says nothing more. */
  #failures = 0;
  /** Resolves with the next answer. */
  #answered = Promise.withResolvers<undefined>();
  #list: ContainerList | undefined;
  #statusUntilMs = -Infinity;

  constructor(options: ContainerCacheOptions) {
    this.#options = options;
  }

  get(id: string): ContainerRecord | undefined {
    const record = this.#records.get(id);
    return record && this.#current(record, this.#options.now());
  }

  /** The same object for as long as nothing in it changed. */
  list(): ContainerList {
    const nowMs = this.#options.now();
    if (this.#list !== undefined && nowMs < this.#statusUntilMs) return this.#list;
    const containers = [...this.#records.values()].map((record) => this.#current(record, nowMs));
    containers.sort((a, b) => (a.name < b.name ? -1 : 1));
    this.#statusUntilMs = containers.reduce(
      (until, { statusUntilMs }) => Math.min(until, statusUntilMs),
      Infinity,
    );
    this.#list = { revision: this.#options.nextRevision(), containers };
    return this.#list;
  }

  #current(record: ContainerRecord, nowMs: number): ContainerRecord {
    if (nowMs < record.statusUntilMs) return record;
    const current = withStatus(record, nowMs);
    this.#records.set(record.id, current);
    return current;
  }

  /** Takes note of an event of a container. */
  onEvent({ action, id }: EngineEvent): void {
    // Some say more behind a colon, such as `health_status: healthy`.
    if (!changes.has(action) && !action.startsWith("health_status")) return;
    if (action === "destroy") {
      this.#known.set(id, ++this.#sequence);
      this.#dirty.delete(id);
      if (this.#records.delete(id)) this.#changed(new Set([id]));
    } else {
      if (!this.#dirty.has(id)) this.#dirty.set(id, performance.now());
      // What comes with the same piece of the stream is one piece of work.
      queueMicrotask(() => this.#refreshDirty());
    }
  }

  /** For how long an event has been waiting to be seen in the list, in milliseconds. */
  get lagMs(): number {
    return Math.max(0, performance.now() - this.#behindSinceMs);
  }

  get #behindSinceMs(): number {
    const [firstDirty = Infinity] = this.#dirty.values();
    return Math.min(firstDirty, ...this.#asked.values());
  }

  /**
   * Waits until the events that came before this call are seen in the list; what comes meanwhile keeps nobody waiting.
   * @param patienceMs the most that it waits: the engine does not tell of a container while that is being started
   */
  async caughtUp(patienceMs: number): Promise<void> {
    const askedAtMs = performance.now();
    const signal = AbortSignal.timeout(patienceMs);
    while (this.#behindSinceMs <= askedAtMs && !signal.aborted) {
      await unlessAborted(this.#answered.promise, signal).catch(() => undefined);
    }
  }

  /**
   * Asks for one container now, beside its events, by id or name.
   * @returns what is so after this call; undefined when there is none
   */
  async refresh(id: string, signal?: AbortSignal): Promise<ContainerRecord | undefined> {
    const [answer] = await this.#ask([id], signal);
    const facts = answer?.facts;
    return facts && withStatus(facts, this.#options.now());
  }

  /** Asks for everything anew: what happened unseen is seen after it. */
  async resync(signal: AbortSignal): Promise<void> {
    const asked = ++this.#sequence;
    using _question = this.#question();
    const list = await this.#options.engine.call(
      "list containers",
      (docker) => docker.listContainers({ all: true }),
      { signal },
    );
    const ids = new Set(list.map(({ Id }) => Id));
    await this.#ask([...ids], signal);
    const unlisted = [...this.#records.keys()].filter((id) => !ids.has(id));
    // One that was made while the list was on its way has an event of its own.
    this.#forget(unlisted.filter((id) => (this.#known.get(id) ?? 0) < asked));
  }

  /** One question about each at a time, so that a burst of its events is one question, and a slow one holds up no others. */
  #refreshDirty(): void {
    for (const [id, sinceMs] of this.#dirty) {
      if (this.#asked.size >= maxInspects) return;
      if (this.#asked.has(id)) continue;
      this.#dirty.delete(id);
      this.#asked.set(id, sinceMs);
      void this.#refreshOne(id);
    }
  }

  async #refreshOne(id: string): Promise<void> {
    const failures = this.#failures;
    try {
      await this.#ask([id]);
    } catch (error) {
      if (failures === this.#failures) {
        this.#failures++;
        this.#dirty.clear();
        this.#options.onError(error);
      }
    } finally {
      this.#asked.delete(id);
      this.#answered.resolve(undefined);
      this.#answered = Promise.withResolvers();
      this.#refreshDirty();
    }
  }

  /** Inspects containers, and remembers what nothing newer is known of. */
  async #ask(ids: readonly string[], signal?: AbortSignal): Promise<{ facts: ContainerFacts | undefined }[]> {
    using _question = this.#question();
    const answers = await mapBounded(ids, maxInspects, async (id) => {
      const asked = ++this.#sequence;
      const facts = await this.#inspect(id, signal);
      return { id: facts?.id ?? id, asked, facts };
    });
    const news = answers.filter(({ id, asked }) => (this.#known.get(id) ?? 0) < asked);
    for (const { id, asked } of news) this.#known.set(id, asked);
    this.#put(news.flatMap(({ facts }) => (facts === undefined ? [] : [facts])));
    this.#forget(news.filter(({ facts }) => facts === undefined).map(({ id }) => id));
    return answers;
  }

  #question(): Disposable {
    this.#questions++;
    return {
      [Symbol.dispose]: () => {
        this.#questions--;
        // Nothing is on its way that could be older.
        if (this.#questions === 0) this.#known.clear();
      },
    };
  }

  #inspect(id: string, signal?: AbortSignal): Promise<ContainerFacts | undefined> {
    return unlessGone(
      this.#options.engine.call(
        "inspect a container",
        async (docker) => containerFacts(await docker.getContainer(id).inspect()),
        { signal },
      ),
    );
  }

  #put(all: readonly ContainerFacts[]): void {
    if (all.length === 0) return;
    const nowMs = this.#options.now();
    for (const facts of all) this.#records.set(facts.id, withStatus(facts, nowMs));
    this.#changed(new Set(all.map(({ id }) => id)));
  }

  #forget(ids: readonly string[]): void {
    const gone = new Set(ids.filter((id) => this.#records.delete(id)));
    if (gone.size > 0) this.#changed(gone);
  }

  #changed(ids: ReadonlySet<string>): void {
    this.#list = undefined;
    this.#options.onChange(ids);
  }
}

function withStatus(facts: ContainerFacts, nowMs: number): ContainerRecord {
  const { text, validUntilMs } = statusLine(facts, nowMs);
  return { ...facts, status: text, statusUntilMs: validUntilMs };
}
