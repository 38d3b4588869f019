/**
 * Cached views of apps, rebuilt only after a visible change: building a list of a thousand apps takes many times as long as
 * sending it. Responses are cacheable.
 */
import { create } from "@bufbuild/protobuf";
import {
  AppSchema,
  ListAppsResponseSchema,
  type App,
  type ListAppsResponse,
} from "../../../gen/svc/v1/app_pb.ts";
import { cacheable } from "../../lib/freeze.ts";
import { revisionOf } from "../../runtimes/contract.ts";
import type { RuntimeStatus } from "../../runtimes/runtime-status.ts";
import type { AppFinder } from "./app-finder.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppCaller } from "./app-registry.ts";
import type { AppsContext } from "../apps-context.ts";
import type { FoundUpdates } from "./found-updates.ts";
import { viewApp, type AppBackupState, type ViewParts } from "./app-view.ts";
import { decodePageToken, encodePageToken } from "./page-token.ts";

export interface AppViewsOptions extends Pick<
  AppsContext,
  "registry" | "runtimes" | "runtimeOf" | "runnable" | "paths" | "userName"
> {
  finder: Pick<AppFinder, "any" | "settled">;
  backups: AppBackupStates;
  startRetries: AppStartRetries;
  updates: Pick<FoundUpdates, "revision" | "of">;
}

export interface ListOptions {
  /** 1 to 1000. */
  limit: number;
  /** Empty for the first page. */
  pageToken: string;
}

/** The backup states of apps; the same object until a state changes. */
export interface AppBackupStates {
  /** Changes whenever a state may have changed. */
  readonly revision: number;
  of(app: AppRecord): AppBackupState | undefined;
}

/** The starts that the daemon has planned, unix milliseconds. */
export interface AppStartRetries {
  /** Changes whenever a planned start may have changed. */
  readonly revision: number;
  atMs(id: string): number | undefined;
}

/** The inputs of a view besides the record, which determines limits and directory. */
type Beside = Omit<ViewParts, "app" | "limits" | "directory">;

/** A view and its inputs. */
interface MadeView {
  readonly of: Beside;
  readonly view: App;
}

/** The apps of a page. */
interface Selection {
  /** The revisions of records, backups, starts and updates. */
  readonly revisions: string;
  readonly apps: readonly AppRecord[];
  /** The runtimes of these apps, each once. */
  readonly ownerUids: readonly number[];
  readonly nextPageToken: string;
}

/** A page and its inputs. */
interface MadePage extends Selection {
  readonly runtimeRevision: number;
  readonly ownerNames: ReadonlyMap<number, string>;
  /** The views, one per app. */
  readonly statuses: readonly (RuntimeStatus | undefined)[];
  readonly page: ListAppsResponse;
}

/** Maximum cached pages; each may use a megabyte with its serialized forms. */
const maxPages = 8;

export class AppViews {
  readonly #options: AppViewsOptions;
  /** By record, because a changed record is a new object. */
  readonly #views = new WeakMap<AppRecord, MadeView>();
  /** By caller and page; the newest last. */
  readonly #pages = new Map<string, MadePage>();

  constructor(options: AppViewsOptions) {
    this.#options = options;
  }

  /** The current view of an app. @throws SvcError `not_found` */
  async get(id: string, caller: AppCaller): Promise<App> {
    const app = await this.#options.finder.any(id, caller);
    return this.#view(app, await this.#options.userName(app.ownerUid));
  }

  /** A page of the caller's apps, sorted by ID. @throws SvcError `invalid_request` for an unknown page token. */
  async list(caller: AppCaller, options: ListOptions): Promise<ListAppsResponse> {
    await this.#options.finder.settled();
    const key = `${caller.root ? "root" : caller.uid} ${options.limit} ${options.pageToken}`;
    const made = this.#pages.get(key);
    if (made !== undefined && (await this.#isCurrent(made))) return made.page;

    const { runtimes } = this.#options;
    const selection = made !== undefined && this.#hasSameRecords(made) ? made : this.#select(caller, options);
    const { apps, ownerUids, nextPageToken } = selection;
    const ownerNames = await this.#ownerNames(ownerUids);
    const runtimeRevision = revisionOf(runtimes);
    const { statuses, views } = this.#viewsOf(apps, ownerNames, made);
    const page = create(ListAppsResponseSchema, { nextPageToken });
    // The views are messages already; `create` would check each of them again.
    page.apps = views;
    cacheable(page);
    this.#store(key, { ...selection, runtimeRevision, ownerNames, statuses, page });
    return page;
  }

  #select(caller: AppCaller, { limit, pageToken }: ListOptions): Selection {
    const revisions = this.#revisions();
    const after = decodePageToken(pageToken);
    const visible = this.#options.registry.visible(caller);
    const rest = after === "" ? visible : visible.filter((app) => app.id > after);
    const apps = rest.slice(0, limit);
    const last = apps.at(-1);
    const nextPageToken = last === undefined || apps.length === rest.length ? "" : encodePageToken(last.id);
    const ownerUids = [...new Set(apps.map((app) => app.ownerUid))];
    return { revisions, apps, ownerUids, nextPageToken };
  }

  /** @param made the cached page: if only statuses can have changed since, only they are compared */
  #viewsOf(
    apps: readonly AppRecord[],
    ownerNames: ReadonlyMap<number, string>,
    made: MadePage | undefined,
  ): { statuses: (RuntimeStatus | undefined)[]; views: App[] } {
    const { runtimeOf } = this.#options;
    const isSame =
      made !== undefined && this.#hasSameRecords(made) && hasSameNames(made.ownerNames, ownerNames);
    const before = isSame ? made : undefined;
    const statuses = apps.map((app) => runtimeOf(app).status(app.id));
    const views = apps.map((app, at) => {
      const known = before?.statuses[at] === statuses[at] ? before?.page.apps[at] : undefined;
      return known ?? this.#view(app, ownerNames.get(app.ownerUid) ?? "");
    });
    return { statuses, views };
  }

  #view(app: AppRecord, ownerName: string): App {
    const { registry, runtimeOf, runnable, paths, backups, startRetries, updates } = this.#options;
    const runtime = runtimeOf(app);
    const beside: Beside = {
      operation: registry.operationOf(app.id),
      status: runtime.status(app.id),
      backups: backups.of(app),
      dueStartAtMs: startRetries.atMs(app.id),
      availableVersion: updates.of(app),
      ownerName,
    };
    const made = this.#views.get(app);
    if (made !== undefined && isSame(made.of, beside)) return made.view;
    const parts = {
      ...beside,
      app,
      limits: runtime.usage.limits(runnable(app)),
      directory: paths.appDir(app.id),
    };
    const view = cacheable(create(AppSchema, viewApp(parts)));
    this.#views.set(app, { of: beside, view });
    return view;
  }

  /** Values that can change synchronously are read last, so that nothing changes before the response. */
  async #isCurrent(made: MadePage): Promise<boolean> {
    if (!this.#hasSameApps(made)) return false;
    const namesNow = await this.#ownerNames(made.ownerUids);
    return hasSameNames(made.ownerNames, namesNow) && this.#hasSameApps(made);
  }

  #hasSameApps(made: MadePage): boolean {
    return this.#hasSameRecords(made) && made.runtimeRevision === revisionOf(this.#options.runtimes);
  }

  #hasSameRecords({ revisions }: Selection): boolean {
    return revisions === this.#revisions();
  }

  #revisions(): string {
    const { registry, backups, startRetries, updates } = this.#options;
    return [registry.revision, backups.revision, startRetries.revision, updates.revision].join();
  }

  async #ownerNames(uids: readonly number[]): Promise<Map<number, string>> {
    const names = await Promise.all(uids.map(this.#options.userName));
    return new Map(uids.map((uid, at) => [uid, names[at] ?? ""]));
  }

  #store(key: string, made: MadePage): void {
    this.#pages.delete(key);
    this.#pages.set(key, made);
    const [oldest] = this.#pages.keys();
    if (this.#pages.size > maxPages && oldest !== undefined) this.#pages.delete(oldest);
  }
}

/** Each value stays the same object until it changes. */
function isSame(before: Beside, now: Beside): boolean {
  return (Object.keys(now) as (keyof Beside)[]).every((part) => before[part] === now[part]);
}

function hasSameNames(before: ReadonlyMap<number, string>, now: ReadonlyMap<number, string>): boolean {
  for (const [uid, name] of before) if (now.get(uid) !== name) return false;
  return true;
}
