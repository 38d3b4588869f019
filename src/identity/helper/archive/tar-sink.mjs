/** Lays entries out by tar(1): one run per tree, fed as they come. */
import { inDirectory, reopen } from "../directory.mjs";
import { LastBytes } from "../output.mjs";
import { runToEnd } from "../run-command.mjs";
import { toolFailure } from "../tool-failure.mjs";

const endOfTar = Buffer.alloc(1024);
const maxComplaintBytes = 4096;

/**
 * @typedef {object} SinkTarget
 * @property {string} root
 * @property {string[]} into A directory beneath the root for each tree.
 */

/** What waits for tar(1) to read it: one piece. @implements {AsyncIterable<Buffer>} */
class Feed {
  /** @type {PromiseWithResolvers<Buffer | undefined>} */
  #offer = Promise.withResolvers();
  /** @type {PromiseWithResolvers<void>} */
  #taken = Promise.withResolvers();

  /** @param {Buffer} piece @returns {Promise<void>} Resolves when it has been taken. */
  put(piece) {
    const taken = this.#taken.promise;
    this.#offer.resolve(piece);
    return taken;
  }

  end() {
    this.#offer.resolve(undefined);
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      const piece = await this.#offer.promise;
      if (piece === undefined) return;
      yield piece;
      this.#offer = Promise.withResolvers();
      const taken = this.#taken;
      this.#taken = Promise.withResolvers();
      taken.resolve();
    }
  }
}

export class TarSink {
  #target;
  #trees;
  #options;
  #signal;
  #tree = -1;
  /** @type {{ feed: Feed, done: Promise<void>, stop: AbortController } | undefined} */
  #run;

  /**
   * @param {SinkTarget} target
   * @param {string[]} trees
   * @param {{ runId: string, sameOwner: boolean }} options
   * @param {AbortSignal} signal
   */
  constructor(target, trees, options, signal) {
    this.#target = target;
    this.#trees = trees;
    this.#options = options;
    this.#signal = signal;
  }

  /**
   * @param {number} tree
   * @param {Buffer} piece
   */
  async write(tree, piece) {
    if (tree !== this.#tree) {
      await this.#end();
      this.#run = this.#start(tree);
      this.#tree = tree;
    }
    await this.#put(piece);
  }

  /** Resolves when all of it is on the disk. */
  async finish() {
    await this.#end();
    const { root } = this.#target;
    await inDirectory({ root, path: "." }, (fd) =>
      this.#tool(["sync", "--file-system", "."], fd, this.#signal),
    );
  }

  async #end() {
    const run = this.#run;
    if (!run) return;
    await this.#put(endOfTar);
    this.#run = undefined;
    run.feed.end();
    await run.done;
  }

  /** @param {unknown} reason */
  async abort(reason) {
    const run = this.#run;
    this.#run = undefined;
    if (!run) return;
    run.stop.abort(reason);
    run.feed.end();
    await run.done.catch(() => undefined);
  }

  /** @param {Buffer} piece */
  async #put(piece) {
    const run = this.#run;
    if (!run) return;
    const ended = run.done.then(() => {
      throw toolFailure("tar", "it ended before its input did");
    });
    ended.catch(() => undefined);
    await Promise.race([run.feed.put(piece), ended]);
  }

  /** @param {number} tree */
  #start(tree) {
    const feed = new Feed();
    const stop = new AbortController();
    const done = this.#extract(tree, feed, AbortSignal.any([this.#signal, stop.signal]));
    // Looked at with every piece, and at the end.
    done.catch(() => undefined);
    return { feed, done, stop };
  }

  /**
   * @param {number} tree
   * @param {Feed} feed
   * @param {AbortSignal} signal
   */
  async #extract(tree, feed, signal) {
    const { root, into } = this.#target;
    const { sameOwner } = this.#options;
    // Not --strip-components, which leaves the tree's own mode, times and attributes out. Symlinks stay as they are.
    const pattern = (this.#trees[tree] ?? "").replaceAll(/[^A-Za-z0-9/_ -]/g, String.raw`\$&`);
    const transform = Buffer.from(`s,^${pattern}(/|$),.\\1,xrhS`, "latin1").toString();
    const argv = [
      "tar",
      ...extractOptions,
      sameOwner ? "--same-owner" : "--no-same-owner",
      `--transform=${transform}`,
    ];
    await inDirectory({ root, path: into[tree] ?? "" }, (fd) => this.#tool(argv, fd, signal, feed), {
      make: 0o700,
    });
  }

  /**
   * @param {string[]} argv
   * @param {number} directory
   * @param {AbortSignal} signal
   * @param {AsyncIterable<Buffer>} [stdin]
   */
  async #tool(argv, directory, signal, stdin) {
    const complaints = new LastBytes(maxComplaintBytes);
    const env = { LC_ALL: "C", PATH: process.env["PATH"] ?? "" };
    const { exitCode } = await runToEnd(
      { argv, cwd: reopen(directory), env, umask: 0o077, runId: this.#options.runId },
      { ...(stdin && { stdin }), stdout: () => undefined, stderr: (chunk) => complaints.push(chunk) },
      signal,
    );
    if (exitCode !== 0) throw toolFailure(argv[0] ?? "", complaints.bytes().toString());
  }
}

const extractOptions = [
  "--extract",
  "--numeric-owner",
  "--same-permissions",
  "--acls",
  "--xattrs",
  "--xattrs-include=user.*",
  "--file=-",
];
