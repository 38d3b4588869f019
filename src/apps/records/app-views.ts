/**
 * Views of apps. A page of the list is cached until a visible value changes: building a list of a thousand apps takes many
 * times as long as sending it.
 */
import { create } from "@bufbuild/protobuf";
import {
  AppSchema,
  ListAppsResponseSchema,
  type App,
  type ListAppsResponse,
} from "../../../gen/svc/v1/app_pb.ts";
import { revisionOf } from "../../runtimes/contract.ts";
import type { AppFinder } from "./app-finder.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppCaller } from "./app-registry.ts";
import type { AppsContext } from "../apps-context.ts";
import type { FoundUpdates } from "./found-updates.ts";
import { viewApp, type AppBackupState } from "./app-view.ts";
import { decodePageToken, encodePageToken } from "./page-token.ts";

export interface AppViewsOptions extends Pick<
  AppsContext,
  "registry" | "runtimes" | "runtimeOf" | "runnable" | "paths" | "userName"
> {
  finder: Pick<AppFinder, "any" | "untilSettled">;
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

/** The backup states of apps. */
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

/** A page, with the revision and names that it was made from. */
interface CachedPage {
  readonly revision: string;
  readonly ownerNames: ReadonlyMap<number, string>;
  readonly page: ListAppsResponse;
}

/** Maximum cached pages; each may use a megabyte with its JSON. */
const maxPages = 8;

export class AppViews {
  readonly #options: AppViewsOptions;
  /** By caller and page; the newest last. */
  readonly #pages = new Map<string, CachedPage>();

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
    await this.#options.finder.untilSettled();
    const key = `${caller.root ? "root" : caller.uid} ${options.limit} ${options.pageToken}`;
    const cached = this.#pages.get(key);
    if (cached !== undefined && (await this.#isCurrent(cached))) return cached.page;

    // Read before the owners' names are looked up, so that a change during the lookup outdates the page.
    const revision = this.#revision();
    const { apps, nextPageToken } = this.#select(caller, options);
    const ownerNames = await this.#ownerNames(apps.map(({ ownerUid }) => ownerUid));
    const page = create(ListAppsResponseSchema, { nextPageToken });
    // The views are messages already; `create` would check each of them again.
    page.apps = apps.map((app) => this.#view(app, ownerNames.get(app.ownerUid) ?? ""));
    this.#store(key, { revision, ownerNames, page });
    return page;
  }

  #select(
    caller: AppCaller,
    { limit, pageToken }: ListOptions,
  ): { apps: readonly AppRecord[]; nextPageToken: string } {
    const after = decodePageToken(pageToken);
    const visible = this.#options.registry.visible(caller);
    const rest = after === "" ? visible : visible.filter((app) => app.id > after);
    const apps = rest.slice(0, limit);
    const last = apps.at(-1);
    const nextPageToken = last === undefined || apps.length === rest.length ? "" : encodePageToken(last.id);
    return { apps, nextPageToken };
  }

  #view(app: AppRecord, ownerName: string): App {
    const { registry, runtimeOf, runnable, paths, backups, startRetries, updates } = this.#options;
    const runtime = runtimeOf(app);
    const view = viewApp({
      app,
      operation: registry.operationOf(app.id),
      status: runtime.status(app.id),
      backups: backups.of(app),
      dueStartAtMs: startRetries.atMs(app.id),
      availableVersion: updates.of(app),
      limits: runtime.usage.limits(runnable(app)),
      ownerName,
      directory: paths.appDir(app.id),
    });
    return create(AppSchema, view);
  }

  async #isCurrent({ revision, ownerNames }: CachedPage): Promise<boolean> {
    if (revision !== this.#revision()) return false;
    const namesNow = await this.#ownerNames([...ownerNames.keys()]);
    for (const [uid, name] of ownerNames) if (namesNow.get(uid) !== name) return false;
    // The apps may have changed during the lookup of the names.
    return revision === this.#revision();
  }

  /** Changes whenever a value in a view may have changed, except for the names of owners. */
  #revision(): string {
    const { registry, runtimes, backups, startRetries, updates } = this.#options;
    return [
      registry.revision,
      revisionOf(runtimes),
      backups.revision,
      startRetries.revision,
      updates.revision,
    ].join();
  }

  async #ownerNames(ownerUids: readonly number[]): Promise<Map<number, string>> {
    const uids = [...new Set(ownerUids)];
    const names = await Promise.all(uids.map(this.#options.userName));
    return new Map(uids.map((uid, at) => [uid, names[at] ?? ""]));
  }

  #store(key: string, page: CachedPage): void {
    this.#pages.delete(key);
    this.#pages.set(key, page);
    const [oldest] = this.#pages.keys();
    if (this.#pages.size > maxPages && oldest !== undefined) this.#pages.delete(oldest);
  }
}
