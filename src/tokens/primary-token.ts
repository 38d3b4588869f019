/** The primary token and its rotation: for the grace of a rotation the replaced token is good as well (S 2.9, 3, D12). */
import { SvcError } from "../errors.ts";
import type { Clock } from "../lib/clock.ts";
import type { Store } from "../store/store.ts";
import { LiveToken } from "./live-token.ts";
import { RotationRecord, type RotationWindow } from "./rotation-record.ts";
import { Lifetime } from "./lifetime.ts";
import { isSameDigest, tokenDigest } from "./token-digest.ts";
import { openTokenFile, removeStagedTokens, stageTokenFile, syncTokenFile } from "./token-file.ts";
import type { Log } from "../lib/log.ts";

/** Longest grace (D12); a clock that was set back while the daemon was down lengthens none beyond it. */
const maxGraceSecs = 86_400;
/** Changes that may wait for their turn. */
const maxWaiting = 16;

export interface PrimaryTokenOptions {
  /** `api.token`. */
  readonly file: string;
  /** The daemon's own uid: only it (or root) may own the file. */
  readonly selfUid: number;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
  /** Another token has become the primary one; the other is replaced, and good for its grace. */
  readonly onRotated: () => void;
  /** A token that was the primary one is no longer good. */
  readonly onEnded: (name: string) => void;
}

/** What a rotation answers; the token is shown this once. */
export interface Rotation {
  readonly token: string;
  /** When the replaced token ends, unix milliseconds. */
  readonly graceUntilMs: number;
}

interface Replaced {
  readonly live: LiveToken;
  readonly life: Lifetime;
}

export class PrimaryToken implements Disposable {
  readonly #options: PrimaryTokenOptions;
  readonly #record: RotationRecord;
  readonly #subscription: Disposable;
  #opened: Promise<void> | undefined;
  #current: LiveToken | undefined;
  #replaced: Replaced | undefined;
  /** The end of the last change: one at a time. */
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  constructor(options: PrimaryTokenOptions) {
    this.#options = options;
    this.#record = new RotationRecord(options.store, options.log);
    this.#subscription = options.store.onChange(() => this.#follow());
  }

  /** Reads the token file, or makes it on the daemon's first start. @throws as {@link openTokenFile} */
  open(): Promise<void> {
    return (this.#opened ??= this.#open());
  }

  /** Compares with both tokens in constant time. */
  find(digest: Buffer): { kind: "primary" | "replaced"; live: LiveToken } | undefined {
    const primary = this.#current;
    const replaced = this.#replaced?.life.isOver === false ? this.#replaced.live : undefined;
    const isPrimary = primary !== undefined && isSameDigest(digest, primary.digest);
    const isReplaced = replaced !== undefined && isSameDigest(digest, replaced.digest);
    if (isPrimary) return { kind: "primary", live: primary };
    return isReplaced ? { kind: "replaced", live: replaced } : undefined;
  }

  /** First 12 hex digits of the digest, once it is open. */
  get name(): string {
    return this.#known.name;
  }

  /** When the replaced token ends, unix milliseconds; `undefined` while no window is open. */
  get graceUntilMs(): number | undefined {
    return this.#replaced?.life.isOver === false ? this.#replaced.life.endsAtMs : undefined;
  }

  /**
   * Makes a new primary token. The one so far is good for the grace; one that an earlier rotation replaced ends now.
   * @param caller name of the presented token; `undefined` for a caller without one
   * @throws SvcError `permission_denied` (`token_denied`) when the caller's token is not the primary one any more;
   *   as {@link stageTokenFile} and `Store.write`, and then everything is as it was
   */
  rotate(caller: string | undefined, graceSecs: number): Promise<Rotation> {
    return this.#exclusively(async () => {
      const { file, clock, log } = this.#options;
      const old = this.#require(caller, "rotate it");
      const staged = await stageTokenFile(file);
      const fresh = new LiveToken(tokenDigest(staged.token));
      const window = { primary: hex(fresh), replaced: hex(old), untilMs: clock.nowMs() + graceSecs * 1000 };
      const standing = this.#record.load();
      try {
        // Both windows, until the file decides for one of them.
        await this.#record.save([window, ...standing]);
        await staged.replace();
      } catch (error) {
        await staged.discard();
        await this.#settle(standing);
        throw error;
      }
      // The new token is in place: from here on nothing is undone.
      await syncTokenFile(file).catch((err: unknown) =>
        log.warn({ err }, "the directory of the token file could not be synced"),
      );
      this.#become(fresh, window);
      await this.#settle([window]);
      log.info({ tokenDigest: fresh.name, replaced: old.name, graceSecs }, "the primary token was rotated");
      return { token: staged.token, graceUntilMs: window.untilMs };
    });
  }

  /**
   * Closes the window: the replaced token ends now.
   * @param caller as in {@link rotate}
   * @returns whether a window was open
   * @throws SvcError `permission_denied` (`token_denied`) for the replaced token, and as `Store.write`
   */
  commit(caller: string | undefined): Promise<boolean> {
    return this.#exclusively(async () => {
      this.#require(caller, "commit its rotation");
      this.sweep();
      if (this.#replaced === undefined) return false;
      // Durable before it counts: a restart must not open the window again.
      await this.#record.save([]);
      this.#endReplaced("the rotation that replaced this primary token was committed");
      return true;
    });
  }

  /** Ends the replaced token when its time is over. @returns whether a window is open */
  sweep(): boolean {
    if (this.#replaced?.life.isOver !== true) return this.#replaced !== undefined;
    this.#endReplaced("the grace of this replaced primary token is over");
    // So that a clock that is set back does not open it again at the next start.
    void this.#exclusively(async () => {
      if (this.#replaced === undefined) await this.#settle([]);
    }).catch(() => undefined);
    return false;
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
  }

  async #open(): Promise<void> {
    const { file, selfUid, store, clock } = this.#options;
    const token = await openTokenFile(file, selfUid);
    await removeStagedTokens(file, clock.nowMs());
    this.#current = new LiveToken(tokenDigest(token));
    // A snapshot of the database may know a window that was closed since.
    const windows = store.restoration === undefined ? this.#record.load() : [];
    const window = this.#windowOf(this.#current, windows);
    if (window !== undefined) this.#openWindow(new LiveToken(Buffer.from(window.replaced, "hex")), window);
    await this.#settle(window === undefined ? [] : [window]);
  }

  /** The window of a primary token, unless it is over. */
  #windowOf(primary: LiveToken, windows: readonly RotationWindow[]): RotationWindow | undefined {
    const nowMs = this.#options.clock.nowMs();
    return windows.find((window) => window.primary === hex(primary) && window.untilMs > nowMs);
  }

  #become(fresh: LiveToken, window: RotationWindow | undefined): void {
    const old = this.#current;
    this.#endReplaced("a later rotation ended this replaced primary token");
    this.#current = fresh;
    this.#options.onRotated();
    if (old === undefined) return;
    if (window?.replaced === hex(old) && window.untilMs > this.#options.clock.nowMs()) {
      this.#openWindow(old, window);
    } else {
      // On the next turn: the very call that rotated with it still gets its answer.
      setImmediate(() => this.#end(old, "this primary token was replaced without a grace"));
    }
  }

  #openWindow(live: LiveToken, { untilMs }: RotationWindow): void {
    const { clock } = this.#options;
    const graceMs = Math.min(untilMs - clock.nowMs(), maxGraceSecs * 1000);
    this.#replaced = { live, life: new Lifetime(clock, graceMs) };
  }

  #endReplaced(message: string): void {
    const replaced = this.#replaced;
    this.#replaced = undefined;
    if (replaced !== undefined) this.#end(replaced.live, message);
  }

  #end(live: LiveToken, message: string): void {
    live.end(message);
    this.#options.onEnded(live.name);
  }

  /** Brings the record up to date where the file has decided already: when that fails, nothing is lost. */
  async #settle(windows: readonly RotationWindow[]): Promise<void> {
    try {
      await this.#record.save(windows);
    } catch (err) {
      this.#options.log.warn({ err }, "the record of the token's rotation could not be brought up to date");
    }
  }

  /** A command that works without the daemon may have rotated or committed beside it. */
  #follow(): void {
    if (this.#current === undefined || !this.#record.isStale) return;
    void this.#exclusively(() => this.#reload()).catch((err: unknown) => {
      this.#options.log.warn({ err }, "the primary token could not be read again");
    });
  }

  async #reload(): Promise<void> {
    if (!this.#record.isStale) return;
    const { file, selfUid, log } = this.#options;
    const windows = this.#record.load();
    const found = new LiveToken(tokenDigest(await openTokenFile(file, selfUid)));
    const window = this.#windowOf(found, windows);
    if (this.#current !== undefined && isSameDigest(found.digest, this.#current.digest)) {
      if (window === undefined)
        this.#endReplaced("the rotation that replaced this primary token was committed");
      return;
    }
    this.#become(found, window);
    log.info({ tokenDigest: found.name }, "another process rotated the primary token");
  }

  get #known(): LiveToken {
    if (this.#current === undefined) throw new Error("the primary token was not opened");
    return this.#current;
  }

  /** @returns the primary token, when the caller's is no other */
  #require(caller: string | undefined, what: string): LiveToken {
    const current = this.#known;
    if (caller === undefined || caller === current.name) return current;
    throw new SvcError(
      "token_denied",
      `the presented token was replaced by a rotation; only the new primary token may ${what}`,
      { payload: {} },
    );
  }

  async #exclusively<T>(work: () => Promise<T>): Promise<T> {
    if (this.#waiting >= maxWaiting) {
      throw new SvcError("too_many", "too many rotations wait; try again in a moment");
    }
    this.#waiting++;
    const turn = this.#last.then(work, work);
    this.#last = turn.catch(() => undefined);
    try {
      return await turn;
    } finally {
      this.#waiting--;
    }
  }
}

function hex({ digest }: LiveToken): string {
  return digest.toString("hex");
}
