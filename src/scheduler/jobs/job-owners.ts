/**
 * Whether a job's owner is still there: a job keeps its owner's name, as the host may give a uid to somebody else, who
 * inherits nothing. It is asked each time and not written down: a directory that knows nobody for an hour disables nothing.
 */
import { SvcError } from "../../errors.ts";
import { damaged } from "../../store/row-document.ts";
import type { Store } from "../../store/store.ts";
import type { Job } from "./job.ts";
import type { JobRegistry } from "./job-registry.ts";
import { nameOwner } from "./job-row.ts";

export interface JobOwnersOptions {
  /** The daemon's own uid, whose jobs are root's: they go with the store and not with a name. */
  selfUid: number;
  /** The name of a uid. @throws SvcError `failed_precondition` when the host has no such user */
  lookUp: (uid: number) => Promise<string>;
}

type Owned = Pick<Job, "id" | "ownerUid" | "ownerName" | "lostApp" | "unreadable">;

export class JobOwners {
  readonly #options: JobOwnersOptions;

  constructor(options: JobOwnersOptions) {
    this.#options = options;
  }

  /** The name of a uid; empty when the host has none, undefined when that cannot be told now. */
  async nameOf(uid: number): Promise<string | undefined> {
    try {
      return await this.#options.lookUp(uid);
    } catch (error) {
      return error instanceof SvcError && error.code === "failed_precondition" ? "" : undefined;
    }
  }

  /** Why a job does not run, as the second half of a sentence; undefined when it is whole, and its owner and its app are there. */
  async problemOf(job: Owned): Promise<string | undefined> {
    const isOwn = job.ownerUid === this.#options.selfUid;
    return this.problem(job, isOwn ? undefined : await this.nameOf(job.ownerUid));
  }

  /** @param nameNow see {@link nameOf} */
  problem(job: Owned, nameNow: string | undefined): string | undefined {
    const { id, ownerUid, ownerName, lostApp } = job;
    if (job.unreadable === true) return `${damaged}: remove it, or write it again`;
    if (lostApp !== undefined) {
      return `its app, ${lostApp}, was removed; to have it for an app of that id which came since: svc schedule enable ${id}`;
    }
    if (ownerUid === this.#options.selfUid || nameNow === undefined) return undefined;
    if (nameNow === "")
      return `its owner, ${ownerName === "" ? "" : `${ownerName}, `}uid ${ownerUid}, is gone`;
    if (ownerName === "" || ownerName === nameNow) return undefined;
    return `its owner, ${ownerName}, is gone: uid ${ownerUid} is ${nameNow} now`;
  }

  /** Names the owners of jobs that an svc has kept which did not note names. @throws what the store throws */
  async nameAll(store: Store, registry: JobRegistry): Promise<void> {
    await registry.fresh();
    const unnamed = registry
      .all()
      .filter(({ ownerUid, ownerName }) => ownerName === "" && ownerUid !== this.#options.selfUid);
    for (const uid of new Set(unnamed.map(({ ownerUid }) => ownerUid))) {
      const name = await this.nameOf(uid);
      // Who is gone by now leaves no name: this is none that a user can have.
      if (name !== undefined) await store.write([nameOwner(uid, name === "" ? `#${uid}` : name)]);
    }
    registry.invalidate();
  }
}
