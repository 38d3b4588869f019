/**
 * Checks whether a job's owner still exists. A job stores its owner's name, because the host may reuse the
 * uid for another user, who must not inherit jobs. The result is not stored, so an outage of a user directory
 * disables nothing permanently.
 */
import { SvcError } from "../../errors.ts";
import { damaged } from "../../store/row-document.ts";
import type { Store } from "../../store/store.ts";
import type { Job } from "./job.ts";
import type { JobRegistry } from "./job-registry.ts";
import { nameOwner } from "./job-row.ts";

export interface JobOwnersOptions {
  /** The daemon's uid, whose jobs are root's: they belong to the store, not to a name. */
  selfUid: number;
  /** The name of a uid. @throws SvcError `failed_precondition` if the host has no such user */
  lookUp: (uid: number) => Promise<string>;
}

type Owned = Pick<Job, "id" | "ownerUid" | "ownerName" | "lostApp" | "unreadable">;

export class JobOwners {
  readonly #options: JobOwnersOptions;

  constructor(options: JobOwnersOptions) {
    this.#options = options;
  }

  /** The name of a uid; empty if the host has none, undefined if the lookup fails now. */
  async nameOf(uid: number): Promise<string | undefined> {
    try {
      return await this.#options.lookUp(uid);
    } catch (error) {
      return error instanceof SvcError && error.code === "failed_precondition" ? "" : undefined;
    }
  }

  /** Why a job does not run, as the second half of a sentence; undefined if it can run. */
  async problemOf(job: Owned): Promise<string | undefined> {
    const isOwn = job.ownerUid === this.#options.selfUid;
    return this.problem(job, isOwn ? undefined : await this.nameOf(job.ownerUid));
  }

  /** @param nameNow see {@link nameOf} */
  problem(job: Owned, nameNow: string | undefined): string | undefined {
    const { id, ownerUid, ownerName, lostApp } = job;
    if (job.unreadable === true) return `${damaged}: remove it, or set it again`;
    if (lostApp !== undefined) {
      return `the app ${lostApp} was removed; to use it for the new app of that ID: svc schedule enable ${id}`;
    }
    if (ownerUid === this.#options.selfUid || nameNow === undefined) return undefined;
    if (nameNow === "")
      return `the owner ${ownerName === "" ? "" : `${ownerName}, `}uid ${ownerUid}, no longer exists`;
    if (ownerName === "" || ownerName === nameNow) return undefined;
    return `the owner ${ownerName} no longer exists: uid ${ownerUid} is ${nameNow} now`;
  }

  /** Adds owner names to jobs of earlier versions, which did not store them. @throws errors of the store */
  async nameAll(store: Store, registry: JobRegistry): Promise<void> {
    await registry.untilCurrent();
    const unnamed = registry
      .all()
      .filter(({ ownerUid, ownerName }) => ownerName === "" && ownerUid !== this.#options.selfUid);
    for (const uid of new Set(unnamed.map(({ ownerUid }) => ownerUid))) {
      const name = await this.nameOf(uid);
      // A placeholder for owners that no longer exist; not a valid user name.
      if (name !== undefined) await store.write([nameOwner(uid, name === "" ? `#${uid}` : name)]);
    }
    registry.invalidate();
  }
}
