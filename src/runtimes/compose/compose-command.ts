/** Finds and runs compose: the engine's plugin `docker compose`, or the older `docker-compose`. */
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { CommandResult, RunCommandOptions } from "../../run-as/user-helper-types.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";

/**
 * The older program would first load Debian's Python modules, which takes longer than loading compose itself; this
 * variable selects Python's own.
 */
const candidates: readonly FoundProgram[] = [
  { command: ["docker", "compose"], env: {} },
  { command: ["docker-compose"], env: { SETUPTOOLS_USE_DISTUTILS: "stdlib" } },
  { command: ["docker-compose"], env: {} },
];

const versionTimeoutMs = 30_000;
/** Variables that are not passed on: arguments set the engine, and the caller sets the project. */
const settledElsewhere = {
  COMPOSE_FILE: "",
  COMPOSE_PROFILES: "",
  COMPOSE_ENV_FILES: "",
  // No user's settings, plugins or credentials.
  DOCKER_CONFIG: "/nonexistent",
  // No includes from the network: compose runs only what the checkout contains.
  COMPOSE_EXPERIMENTAL_GIT_REMOTE: "0",
  COMPOSE_EXPERIMENTAL_OCI_REMOTE: "0",
  COMPOSE_ANSI: "never",
  COMPOSE_STATUS_STDOUT: "0",
};

interface FoundProgram {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

interface FoundCommand extends FoundProgram {
  readonly version: string;
}

export class ComposeCommand {
  readonly #userHelpers: UserHelpers;
  #found: Promise<FoundCommand> | undefined;

  constructor(userHelpers: UserHelpers) {
    this.#userHelpers = userHelpers;
  }

  /**
   * Runs compose to its end as `identity`.
   * @param args start with the options before the subcommand
   * @throws SvcError `failed_precondition` if compose is not installed
   */
  async run(
    userHelper: UserHelper,
    args: readonly string[],
    { env = {}, ...options }: RunCommandOptions & { timeoutMs: number },
  ): Promise<CommandResult> {
    const { command, env: own } = await this.#find();
    return userHelper.runCommand([...command, ...args], {
      ...options,
      env: { ...env, ...settledElsewhere, ...own },
    });
  }

  /** Whether it is compose v1, which supports fewer keys. @throws SvcError as {@link run} */
  async isClassic(): Promise<boolean> {
    return /^v?1\./.test((await this.#find()).version);
  }

  /**
   * Identifies the program, because results depend on it; changes with an upgrade. @throws SvcError as {@link run}
   */
  async fingerprint(): Promise<string> {
    return JSON.stringify([await this.#find(), settledElsewhere]);
  }

  /** Searches once; searches again after a search without result. */
  #find(): Promise<FoundCommand> {
    this.#found ??= this.#search().catch((error: unknown) => {
      this.#found = undefined;
      throw error;
    });
    return this.#found;
  }

  async #search(): Promise<FoundCommand> {
    const self = await this.#userHelpers.as(this.#userHelpers.selfUid);
    for (const candidate of candidates) {
      const version = await self
        .runCommand([...candidate.command, "version", "--short"], {
          env: { ...settledElsewhere, ...candidate.env },
          timeoutMs: versionTimeoutMs,
        })
        .then(
          ({ exitCode, stdout }) => (exitCode === 0 ? stdout.trim() : ""),
          () => "",
        );
      if (/^v?\d/.test(version)) return { ...candidate, version };
    }
    throw new SvcError(
      "not_possible",
      "compose packages require docker compose or docker-compose, and this host has neither; install one of them",
    );
  }
}
