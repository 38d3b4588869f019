/** All sources: svc's own, those of the configuration file, and those that were added. */
import { isAbsolute } from "node:path";
import { SvcError, invalidField, notFound } from "../../errors.ts";
import { isName } from "../../store/row-document.ts";
import { RowReader, type RowKind } from "../../store/row-reader.ts";
import type { Log } from "../../lib/log.ts";
import type { Store } from "../../store/store.ts";
import { isIndexUrl } from "./fetch-index.ts";
import { parseGitUrl, redactUrls } from "../git/git-url.ts";

/** A source: an index of packages. */
export interface SourceConfig {
  readonly name: string;
  /** A git URL, the https URL of an index file, or the absolute path of a directory. */
  readonly url: string;
  /** Whether it comes with svc. */
  readonly shipped?: boolean;
}

/** Name of the source that comes with svc. */
const shippedName = "svc";

/** A source for the API. */
export interface SourceView {
  name: string;
  /** Without possible secrets. */
  url: string;
  /** Whether it is in the configuration file, and can only be changed there. */
  configured: boolean;
  /** Whether it comes with svc. */
  shipped: boolean;
}

export const sourceRows: RowKind<SourceConfig, SourceConfig> = {
  table: "sources",
  columns: { name: isName, url: isName },
  nameOf: ({ name }) => `source "${name}"`,
  remedy: ({ name }) => `svc source remove ${name} removes it; then add it again`,
  read: (row) => row,
};

export class SourceList {
  #configured: readonly SourceConfig[];
  readonly #store: Store;
  readonly #shipped: SourceConfig;
  readonly #reader: RowReader<SourceConfig, SourceConfig>;

  /** @param shippedDir directory of the index that comes with svc */
  constructor(
    configured: readonly SourceConfig[],
    store: Store,
    shippedDir: string,
    log?: Pick<Log, "error">,
  ) {
    this.#reader = new RowReader(sourceRows, log);
    this.#configured = configured;
    this.#store = store;
    this.#shipped = { name: shippedName, url: shippedDir, shipped: true };
  }

  /** Applies the configuration file's sources. */
  configure(configured: readonly SourceConfig[]): void {
    this.#configured = configured;
  }

  /**
   * All sources by name. For equal names, the configuration file has precedence over added sources, and these over
   * svc's own.
   */
  all(): SourceConfig[] {
    const added = this.#reader.readAll(this.#store.all("SELECT name, url FROM sources"));
    const byName = new Map<string, SourceConfig>();
    for (const source of [this.#shipped, ...added, ...this.#configured]) byName.set(source.name, source);
    return [...byName.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  views(): SourceView[] {
    return this.all().map((source) => this.#view(source));
  }

  /**
   * Adds a source, or changes its URL.
   * @param check reads the source before it is stored
   * @throws SvcError `not_possible` for one of the configuration file, `invalid_request` for a URL that cannot be a
   *   source, what `check` throws
   */
  async upsert(source: SourceConfig, check?: (source: SourceConfig) => Promise<void>): Promise<SourceView> {
    this.#rejectConfigured(source.name);
    const problem = urlProblem(source.url);
    if (problem !== undefined) throw invalidField("url", `"${redactUrls(source.url)}" ${problem}`);
    await check?.(source);
    await this.#store.write([
      {
        sql: `INSERT INTO sources (name, url) VALUES (?, ?)
              ON CONFLICT (name) DO UPDATE SET url = excluded.url`,
        params: [source.name, source.url],
        changes: 1,
      },
    ]);
    return this.#view(source);
  }

  /** @throws SvcError `not_found`; `not_possible` for one of the configuration file, and for svc's own */
  async remove(name: string): Promise<void> {
    this.#rejectConfigured(name);
    if (this.all().some((source) => source.name === name && source.shipped === true)) {
      throw new SvcError(
        "not_possible",
        `the source "${name}" comes with svc; add another source of the same name to replace it`,
      );
    }
    const [removed] = await this.#store.write(
      [{ sql: "DELETE FROM sources WHERE name = ?", params: [name] }],
      { essential: true },
    );
    if (removed?.changes !== 1) throw notFound("source", name);
  }

  #rejectConfigured(name: string): void {
    if (!this.#isConfigured(name)) return;
    throw new SvcError("not_possible", `the source "${name}" is in the configuration file; change it there`);
  }

  #isConfigured(name: string): boolean {
    return this.#configured.some((source) => source.name === name);
  }

  #view({ name, url, shipped = false }: SourceConfig): SourceView {
    return { name, url: redactUrls(url), configured: this.#isConfigured(name), shipped };
  }
}

function urlProblem(url: string): string | undefined {
  if (url.startsWith("/"))
    return isAbsolute(url) && !url.includes("\0") ? undefined : "is not an absolute path";
  if (isIndexUrl(url)) {
    return URL.canParse(url) ? undefined : "is not a URL";
  }
  const result = parseGitUrl(url);
  if (!("problem" in result)) return undefined;
  return /[/:]/.test(url)
    ? result.problem
    : `${result.problem}, and is not a path; for a directory, use ./${redactUrls(url)}`;
}
