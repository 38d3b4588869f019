/** Collects the events of this node from their sources. */
import type { Alert } from "../observability/alerts/alert-store.ts";
import type { AppChanges } from "../apps/records/app-changes.ts";
import type { AppFinder } from "../apps/records/app-finder.ts";
import type { BackupEnd } from "../backups/backup-maker.ts";
import type { EngineState } from "../engine/engine-state.ts";
import type { EventKind } from "../../gen/svc/v1/values.ts";
import type { OperationRecord } from "../operations/operation-record.ts";
import type { Run } from "../scheduler/runs/run.ts";
import { eventsOfChange } from "../observability/events/app-events.ts";
import { EventLog, type EventLogOptions, type NodeEvent } from "../observability/events/event-log.ts";

export interface NodeEventsOptions extends EventLogOptions {
  changes: Pick<AppChanges, "listen">;
  finder: Pick<AppFinder, "ownerOf">;
  engine: Pick<EngineState, "onChange">;
}

/** The interval of container events, and the maximum number of them per interval; more become one event. */
const containers = { everyMs: 500, most: 20 };

export class NodeEvents implements AsyncDisposable {
  readonly log: EventLog;
  readonly #options: NodeEventsOptions;
  readonly #containers = new Set<string>();
  readonly #resources = new AsyncDisposableStack();
  #timer: NodeJS.Timeout | undefined;
  #starting: Promise<void> = Promise.resolve();

  constructor(options: NodeEventsOptions) {
    this.#options = options;
    this.log = new EventLog(options);
  }

  /** Publishes changes of apps and containers from now on. The first events wait until the running apps are known. */
  start(): void {
    this.#starting = this.#watch().catch(this.#options.onError);
  }

  async #watch(): Promise<void> {
    const { changes, engine } = this.#options;
    const following = await changes.listen((change) => {
      for (const event of eventsOfChange(change)) this.log.append(event);
    });
    this.#resources.use(following);
    this.#resources.use(
      engine.onChange((change) => {
        if (change.kind !== "containers") return;
        for (const id of change.ids) this.#containers.add(id);
        this.#timer ??= setTimeout(() => this.#publishContainers(), containers.everyMs).unref();
      }),
    );
  }

  /** A run started or ended. */
  readonly onRun = ({ job, outcome }: Run): void => {
    const of = { subject: job.id, owner: job.ownerUid };
    this.log.append(
      outcome === undefined
        ? { kind: "run.began", state: "RUNNING", ...of }
        : { kind: "run.ended", state: outcome.status, message: outcome.error, ...of },
    );
  };

  /** A backup was stored on one storage, or failed. */
  readonly onBackup = ({ appId, ownerUid, storage, error }: BackupEnd): void => {
    const of = { appId, owner: ownerUid, subject: storage };
    this.log.append(
      error === "" ? { kind: "backup.made", ...of } : { kind: "backup.failed", message: error, ...of },
    );
  };

  readonly onOperationStart = (record: OperationRecord): void =>
    this.#appendOperation("operation.started", record);

  readonly onOperationFinish = (record: OperationRecord): void =>
    this.#appendOperation("operation.finished", record);

  #appendOperation(kind: EventKind, { id, appId, ownerUid, state, kind: message }: OperationRecord): void {
    this.log.append({
      ...{ kind, subject: id, state, message, owner: ownerUid },
      ...(appId !== "" && { appId }),
    });
  }

  /** An alert started or ended. */
  readonly onAlert = ({ rule, subject, message, resolvedAtMs }: Alert, isOfHost: boolean): void => {
    const kind = resolvedAtMs === undefined ? "alert.began" : "alert.ended";
    const owner = isOfHost ? undefined : this.#options.finder.ownerOf(subject);
    this.log.append({
      ...{ kind, subject, message, state: rule },
      ...(!isOfHost && { appId: subject, isRoots: owner === undefined }),
      ...(owner !== undefined && { owner }),
    });
  };

  #publishContainers(): void {
    this.#timer = undefined;
    const ids = [...this.#containers];
    this.#containers.clear();
    const changed = (subject: string): NodeEvent => ({ kind: "container.changed", subject, isRoots: true });
    if (ids.length > containers.most) this.log.append(changed(""));
    else for (const id of ids) this.log.append(changed(id));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#starting;
    await this.#resources.disposeAsync();
    clearTimeout(this.#timer);
  }
}
