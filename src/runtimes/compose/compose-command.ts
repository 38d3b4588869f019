/** Finds and runs compose: the engine's plugin `docker compose`, or the older `docker-compose`. */
import { SvcError } from "../../errors.ts";
import type { IsolatedOptions } from "../../run-as/isolated-run.ts";
import type { CommandResult } from "../../run-as/user-helper-types.ts";

/**
 * The older program would first load Debian's Python modules, which takes longer than loading compose itself; this
 * variable selects Python's own.
 */
const candidates: readonly FoundProgram[] = [
  { command: ["docker", "compose"], env: {} },
  { command: ["docker-compose"], env: { SETUPTOOLS_USE_DISTUTILS: "stdlib", ...ownModulesOnly() } },
  { command: ["docker-compose"], env: ownModulesOnly() },
];

const versionTimeoutMs = 30_000;
/** Variables that are not passed on: arguments set the engine, and the caller sets the project. */
const settledElsewhere = {
  COMPOSE_ENV_FILES: "",
  // No user's settings, plugins or credentials.
  DOCKER_CONFIG: "/nonexistent",
  // No includes from the network: compose runs only what the checkout contains.
  COMPOSE_EXPERIMENTAL_GIT_REMOTE: "0",
  COMPOSE_EXPERIMENTAL_OCI_REMOTE: "0",
  COMPOSE_ANSI: "never",
  COMPOSE_STATUS_STDOUT: "0",
  // No code of the package, whose manifest sets variables.
  ...{ LD_PRELOAD: "", LD_AUDIT: "", LD_LIBRARY_PATH: "", GCONV_PATH: "", GLIBC_TUNABLES: "" },
};

/** Passed as arguments: an empty value keeps compose from reading these in `.env`. */
const chosenElsewhere = { COMPOSE_FILE: "", COMPOSE_PROFILES: "" };

/** Keeps Python and its libraries from loading code of the package. */
function ownModulesOnly(): Record<string, string> {
  const none = { PYTHONPATH: "", PYTHONHOME: "", PYTHONPLATLIBDIR: "", PYTHONWARNINGS: "" };
  return { ...none, PYTHONNOUSERSITE: "1", OPENSSL_CONF: "/dev/null" };
}

/** Runs programs as one user, or isolated. */
export interface CommandRunner {
  runCommand(argv: readonly string[], options?: IsolatedOptions): Promise<CommandResult>;
}

/** The users that compose runs as. */
export interface CommandRunners {
  readonly selfUid: number;
  as: (uid: number) => Promise<CommandRunner>;
}

interface ComposeRun extends IsolatedOptions {
  timeoutMs: number;
  /** Whether `.env` may set {@link chosenElsewhere}, to find out what it sets. Default: no. */
  readsChoices?: boolean;
}

interface FoundProgram {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

interface FoundCommand extends FoundProgram {
  readonly version: string;
}

export class ComposeCommand {
  readonly #runners: CommandRunners;
  #found: Promise<FoundCommand> | undefined;

  constructor(runners: CommandRunners) {
    this.#runners = runners;
  }

  /**
   * Runs compose to its end.
   * @param args start with the options before the subcommand
   * @throws SvcError `failed_precondition` if compose is not installed
   */
  async run(
    runner: CommandRunner,
    args: readonly string[],
    { env = {}, readsChoices = false, ...options }: ComposeRun,
  ): Promise<CommandResult> {
    const { command, env: own } = await this.#find();
    return runner.runCommand([...command, ...args], {
      ...options,
      env: { ...env, ...settledElsewhere, ...(!readsChoices && chosenElsewhere), ...own },
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
    const self = await this.#runners.as(this.#runners.selfUid);
    for (const candidate of candidates) {
      const version = await self
        .runCommand([...candidate.command, "version", "--short"], {
          env: { ...settledElsewhere, ...chosenElsewhere, ...candidate.env },
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
