/**
 * posix_spawn(3), for programs that are started by the hundred. Node forks, which copies the page tables of the whole
 * process and blocks the event loop for that time (5 ms with 70 MB, 30 ms with 370 MB). posix_spawn shares them, on a
 * thread of the pool.
 */
import { closeSync, constants, openSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type * as Koffi from "koffi";
import { loadLibc } from "./libc.ts";
import { retainInheritedDescriptors, loadPipes, type Pipe } from "./pipe.ts";

export interface SpawnOptions {
  /** An absolute path. */
  readonly command: string;
  readonly args: readonly string[];
  /** The whole environment. */
  readonly env: Readonly<Record<string, string>>;
  /** Become the descriptors 0, 1, 2, …; no other descriptor is passed on. */
  readonly fds: readonly number[];
}

/** Space for the C library's opaque objects, which use up to 336 bytes. */
const opaqueBytes = 1_024;
const flagSetSignalDefaults = 0x04;
const flagSetSignalMask = 0x08;
const flagSetSession = 0x80;
const noHang = 1;
/** Milliseconds to wait: a process that was seen to exit may not be reapable yet. */
const firstReapMs = 2;
const maxReapMs = 1_000;

type Call = (...args: unknown[]) => number;

/** Threads of the pool that may wait for programs to be executed; others need threads too. */
const maxStarting = 2;

/** Starts programs in `/`, each as leader of a new session, with no signal blocked or ignored. */
export class PosixSpawn {
  readonly openPipe: (use: "read" | "write") => Pipe;
  #starting = 0;
  readonly #waiting: (() => void)[] = [];
  readonly #spawn: Koffi.KoffiFunc<Call>;
  readonly #waitpid: Call;
  readonly #actionCalls: { init: Call; dup2: Call; chdir: Call; destroy: Call };
  readonly #attributes: Buffer;

  /** @throws Error as {@link loadLibc} does */
  constructor() {
    retainInheritedDescriptors();
    this.openPipe = loadPipes();
    const libc = loadLibc();
    const int = (declaration: string): Call => libc.func(`int ${declaration}`);
    this.#spawn = libc.func(
      "int posix_spawn(_Out_ int *pid, const char *path, void *actions, void *attributes, const char **argv, const char **env)",
    );
    this.#waitpid = int("waitpid(int pid, _Out_ int *status, int options)");
    this.#actionCalls = {
      init: int("posix_spawn_file_actions_init(void *actions)"),
      dup2: int("posix_spawn_file_actions_adddup2(void *actions, int fd, int target)"),
      chdir: int("posix_spawn_file_actions_addchdir_np(void *actions, const char *path)"),
      destroy: int("posix_spawn_file_actions_destroy(void *actions)"),
    };
    this.#attributes = Buffer.alloc(opaqueBytes);
    const [all, none] = [Buffer.alloc(opaqueBytes), Buffer.alloc(opaqueBytes)];
    int("sigfillset(void *set)")(all);
    int("posix_spawnattr_init(void *attributes)")(this.#attributes);
    int("posix_spawnattr_setsigdefault(void *attributes, void *set)")(this.#attributes, all);
    int("posix_spawnattr_setsigmask(void *attributes, void *set)")(this.#attributes, none);
    const flags = flagSetSignalDefaults | flagSetSignalMask | flagSetSession;
    int("posix_spawnattr_setflags(void *attributes, short flags)")(this.#attributes, flags);
  }

  /** Resolves with the PID once the program is executed. @throws Error with `errno` if it cannot be */
  async start({ command, args, env, fds }: SpawnOptions): Promise<number> {
    const { init, dup2, chdir, destroy } = this.#actionCalls;
    const actions = Buffer.alloc(opaqueBytes);
    init(actions);
    chdir(actions, "/");
    for (const [target, fd] of fds.entries()) dup2(actions, fd, target);
    const pid = new Int32Array(1);
    const argv = [command, ...args, null];
    const envp = [...Object.entries(env).map(([name, value]) => `${name}=${value}`), null];
    await this.#acquireSlot();
    try {
      const errno = await new Promise<number>((resolve, reject) => {
        this.#spawn.async(
          pid,
          command,
          actions,
          this.#attributes,
          argv,
          envp,
          (error: Error | null, result: number) => (error === null ? resolve(result) : reject(error)),
        );
      });
      if (errno !== 0)
        throw Object.assign(new Error(`${command} cannot be started: errno ${errno}`), { errno });
      return pid[0] ?? 0;
    } finally {
      this.#starting -= 1;
      this.#waiting.shift()?.();
      destroy(actions);
    }
  }

  /** Runs a program whose descriptors 0 to 3 are `/dev/null`. @returns as {@link reap} */
  async run(program: Omit<SpawnOptions, "fds">): Promise<number | undefined> {
    const nothing = openSync("/dev/null", constants.O_RDWR);
    try {
      const pid = await this.start({ ...program, fds: [nothing, nothing, nothing, nothing] });
      return await this.reap(pid);
    } finally {
      closeSync(nothing);
    }
  }

  async #acquireSlot(): Promise<void> {
    if (this.#starting >= maxStarting) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#starting += 1;
  }

  /**
   * Reaps a process that has exited or is about to. Its PID is not reused before that.
   * @returns its exit code; undefined if a signal ended it
   */
  async reap(pid: number): Promise<number | undefined> {
    const status = new Int32Array(1);
    for (let waitMs = firstReapMs; ; waitMs = Math.min(waitMs * 2, maxReapMs)) {
      if (this.#waitpid(pid, status, noHang) !== 0) break;
      await sleep(waitMs);
    }
    const [word = 0] = status;
    return (word & 0x7f) === 0 ? (word >> 8) & 0xff : undefined;
  }
}

/** Pipes between this process and a program that it starts. This process's ends are destroyed with it. */
export class ProgramPipes implements Disposable {
  readonly #openPipe: PosixSpawn["openPipe"];
  readonly #streams = new DisposableStack();
  readonly #programEnds = new DisposableStack();

  constructor({ openPipe }: Pick<PosixSpawn, "openPipe">) {
    this.#openPipe = openPipe;
  }

  /** @param use what this process does */
  open(use: "read" | "write"): Pipe {
    const pipe = this.#openPipe(use);
    this.#streams.defer(() => pipe.stream.destroy());
    this.#programEnds.adopt(pipe.fd, closeSync);
    return pipe;
  }

  /** Closes the program's ends in this process: the started program has its own. */
  closeProgramEnds(): void {
    this.#programEnds.dispose();
  }

  [Symbol.dispose](): void {
    this.#programEnds.dispose();
    this.#streams.dispose();
  }
}
