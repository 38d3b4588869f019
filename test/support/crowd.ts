/** Many processes and listening sockets at once, for tests that list them. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

export interface CrowdSize {
  readonly processes: number;
  readonly sockets: number;
}

const program = fileURLToPath(new URL("./crowd-member.mjs", import.meta.url));
/** Each process holds a part: the number of open files per process is limited. */
const members = 5;

export class Crowd implements AsyncDisposable {
  readonly #members: readonly ChildProcess[];
  /** The PIDs of all its processes. */
  pids: ReadonlySet<number> = new Set();

  private constructor() {
    this.#members = Array.from({ length: members }, () =>
      fork(program, { execArgv: [], stdio: ["ignore", "inherit", "inherit", "ipc"] }),
    );
  }

  static async start(size: CrowdSize): Promise<Crowd> {
    const crowd = new Crowd();
    await crowd.become(size);
    return crowd;
  }

  /** Resolves when as many exist, and the removed ones are gone. */
  async become({ processes, sockets }: CrowdSize): Promise<void> {
    const shares = await Promise.all(
      this.#members.map(async (member, at) => {
        const answer = once(member, "message") as Promise<[number[]]>;
        member.send({ processes: shareOf(processes - members, at), sockets: shareOf(sockets, at) });
        const [pids] = await answer;
        return [member.pid ?? 0, ...pids];
      }),
    );
    this.pids = new Set(shares.flat());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(
      this.#members.map(async (member) => {
        const exited = once(member, "exit");
        member.disconnect();
        await exited;
      }),
    );
  }
}

function shareOf(total: number, at: number): number {
  return Math.floor(total / members) + Number(at < total % members);
}
