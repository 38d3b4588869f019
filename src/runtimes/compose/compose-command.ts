/** The program that turns compose files into containers: the engine's plugin, or the one of its own before it. */
import { SvcError } from "../../errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { CommandResult, RunCommandOptions } from "../../identity/identity-work.ts";
import type { Identities } from "../../identity/identities.ts";

/**
 * The older program begins with Debian's own modules, which take longer than compose itself to load, unless it is told to take those
 * of Python: where Python has them.
 */
const candidates: readonly FoundProgram[] = [
  { command: ["docker", "compose"], env: {} },
  { command: ["docker-compose"], env: { SETUPTOOLS_USE_DISTUTILS: "stdlib" } },
  { command: ["docker-compose"], env: {} },
];

const versionTimeoutMs = 30_000;
/** None of these: where the engine is and which project it is about are said by arguments. */
const settledElsewhere = {
  COMPOSE_FILE: "",
  COMPOSE_PROJECT_NAME: "",
  COMPOSE_PROFILES: "",
  COMPOSE_ENV_FILES: "",
  // Nobody's own settings, plugins or credentials.
  DOCKER_CONFIG: "/nonexistent",
  // Includes from the network are off: what is run is what the checkout says.
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
  readonly #identities: Identities;
  #found: Promise<FoundCommand> | undefined;

  constructor(identities: Identities) {
    this.#identities = identities;
  }

  /**
   * Runs it to its end as `identity`.
   * @param args begin with the options that come before the subcommand
   * @throws SvcError `failed_precondition` where no such program is installed
   */
  async run(
    identity: Identity,
    args: readonly string[],
    { env = {}, ...options }: RunCommandOptions & { timeoutMs: number },
  ): Promise<CommandResult> {
    const { command, env: own } = await this.#find();
    return identity.runCommand([...command, ...args], {
      ...options,
      env: { ...env, ...settledElsewhere, ...own },
    });
  }

  /** Whether it is of the first generation, which knows fewer keys. @throws SvcError as {@link run} */
  async isClassic(): Promise<boolean> {
    return /^v?1\./.test((await this.#find()).version);
  }

  /** What its answers depend on beside what it is asked; another one after an upgrade. @throws SvcError as {@link run} */
  async fingerprint(): Promise<string> {
    return JSON.stringify([await this.#find(), settledElsewhere]);
  }

  /** Looked for once; a host that has none is looked at again the next time. */
  #find(): Promise<FoundCommand> {
    this.#found ??= this.#search().catch((error: unknown) => {
      this.#found = undefined;
      throw error;
    });
    return this.#found;
  }

  async #search(): Promise<FoundCommand> {
    const self = await this.#identities.as(this.#identities.selfUid);
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
      "compose packages need docker compose or docker-compose, and this host has neither: install one of them",
    );
  }
}
