/** The sources that there are: those of the configuration file, and those that were added later. */
import { isAbsolute } from "node:path";
import { SvcError, invalidField, notFound } from "../errors.ts";
import type { Store } from "../store/store.ts";
import { isIndexUrl } from "./fetch-index.ts";
import { parseGitUrl, redactUrls } from "./git-url.ts";
import type { SourceConfig } from "./source-config.ts";

/** A source as people see it. */
export interface SourceView {
  name: string;
  /** Without what may be a secret in it. */
  url: string;
  /** Whether it is in the configuration file, and can only be changed there. */
  configured: boolean;
}

export class SourceList {
  #configured: readonly SourceConfig[];
  readonly #store: Store;

  constructor(configured: readonly SourceConfig[], store: Store) {
    this.#configured = configured;
    this.#store = store;
  }

  /** Takes over what the configuration file says now. */
  configure(configured: readonly SourceConfig[]): void {
    this.#configured = configured;
  }

  /** All of them, by name; the configuration file's win over added ones that have their name. */
  all(): SourceConfig[] {
    const names = new Set(this.#configured.map(({ name }) => name));
    const added = this.#store.all<{ name: string; url: string }>("SELECT name, url FROM sources");
    return [...this.#configured, ...added.filter(({ name }) => !names.has(name))].toSorted((a, b) =>
      a.name < b.name ? -1 : 1,
    );
  }

  views(): SourceView[] {
    return this.all().map(({ name, url }) => this.#view({ name, url }));
  }

  /**
   * Adds a source, or gives one another URL.
   * @throws SvcError `not_possible` for one of the configuration file, `invalid_request` for a URL that cannot be a source
   */
  async upsert(source: SourceConfig): Promise<SourceView> {
    this.#refuseConfigured(source.name);
    const problem = urlProblem(source.url);
    if (problem !== undefined) throw invalidField("url", `"${redactUrls(source.url)}" ${problem}`);
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

  /** @throws SvcError `not_found`; `not_possible` for one of the configuration file */
  async remove(name: string): Promise<void> {
    this.#refuseConfigured(name);
    const [removed] = await this.#store.write(
      [{ sql: "DELETE FROM sources WHERE name = ?", params: [name] }],
      { essential: true },
    );
    if (removed?.changes !== 1) throw notFound("source", name);
  }

  #refuseConfigured(name: string): void {
    if (!this.#isConfigured(name)) return;
    throw new SvcError("not_possible", `the source "${name}" is in the configuration file: change it there`);
  }

  #isConfigured(name: string): boolean {
    return this.#configured.some((source) => source.name === name);
  }

  #view({ name, url }: SourceConfig): SourceView {
    return { name, url: redactUrls(url), configured: this.#isConfigured(name) };
  }
}

function urlProblem(url: string): string | undefined {
  if (url.startsWith("/")) return isAbsolute(url) && !url.includes("\0") ? undefined : "is no absolute path";
  if (isIndexUrl(url)) {
    return URL.canParse(url) ? undefined : "is no URL";
  }
  const result = parseGitUrl(url);
  return "problem" in result ? result.problem : undefined;
}
