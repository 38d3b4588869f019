/**
 * Unpacks entries with tar(1): one run per tree, fed as entries arrive. Unchanged files are linked from the previous
 * archive's tree.
 */
import { chmodSync, linkSync, lstatSync, utimesSync } from "node:fs";
import { at, descend, ownedFd, inDirectory, openSubdirectory } from "../directory.mjs";
import { setMode } from "../host/archive/tar-bytes.mjs";
import { runTool, toolFailure } from "../run-tool.mjs";
import { runInSlices } from "../slices.mjs";
import { damaged } from "./tar-reader.mjs";

const endOfTar = Buffer.alloc(1024);
const blockBytes = 512;
const ownerMayWrite = 0o200;

/** @typedef {import("./tar-reader.mjs").TarEntry} TarEntry */

/**
 * @typedef {object} SinkTarget
 * @property {string} root
 * @property {string[]} into a directory below the root for each tree
 * @property {(string | null)[]} [base] the directories of the same trees from the previous archive
 */

/** Holds one piece until tar(1) reads it. @implements {AsyncIterable<Buffer>} */
class Feed {
  /** @type {PromiseWithResolvers<Buffer | undefined>} */
  #offer = Promise.withResolvers();
  /** @type {PromiseWithResolvers<void>} */
  #taken = Promise.withResolvers();

  /** @param {Buffer} piece @returns {Promise<void>} resolves when it has been read */
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
  /** Entries of the current tree that become read-only after it is unpacked. @type {Pick<TarEntry, "path" | "mode">[]} */
  #readOnly = [];
  /** Unchanged files of the current tree. @type {TarEntry[]} */
  #deferred = [];
  /** Times of its directories by path. @type {Map<string, string>} */
  #times = new Map();
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
   * Starts an entry with its headers and possibly some of its content.
   * @param {number} tree
   * @param {TarEntry} entry
   * @param {Buffer} bytes
   */
  async begin(tree, entry, bytes) {
    if (tree !== this.#tree) {
      await this.#end();
      this.#run = this.#start(tree);
      this.#tree = tree;
    }
    if (entry.type === "directory" && this.#target.base) this.#times.set(entry.path, entry.mtime);
    const headers = bytes.subarray(0, entry.dataAt - entry.at);
    const isUnwritable =
      (entry.type === "file" || entry.type === "directory") && (entry.mode & ownerMayWrite) === 0;
    // tar(1) sets attributes after the mode, and without write permission only root may set them.
    if (isUnwritable && process.geteuid?.() !== 0 && headers.includes("SCHILY.xattr.")) {
      this.#readOnly.push({ path: entry.path, mode: entry.mode });
      setMode(headers.subarray(-blockBytes), entry.mode | ownerMayWrite);
    }
    await this.#put(bytes);
  }

  /**
   * Adds a file that is unchanged since the previous archive.
   * @param {number} tree
   * @param {TarEntry} entry
   */
  keep(tree, entry) {
    if (tree !== this.#tree || !this.#target.base) {
      throw damaged("has only changes since another archive: restore that archive first");
    }
    this.#deferred.push(entry);
  }

  /**
   * Adds content to the current entry.
   * @param {Buffer} piece
   */
  async write(piece) {
    await this.#put(piece);
  }

  /** Resolves when everything is on disk. */
  async finish() {
    await this.#end();
    const { root } = this.#target;
    await inDirectory({ root, path: "." }, (fd) =>
      runTool(["sync", "--file-system", "."], fd, this.#signal, { runId: this.#options.runId }),
    );
  }

  async #end() {
    const run = this.#run;
    if (!run) return;
    await this.#put(endOfTar);
    this.#run = undefined;
    run.feed.end();
    await run.done;
    await this.#link();
    await this.#restrict();
  }

  async #link() {
    const [deferred, times] = [this.#deferred, this.#times];
    this.#deferred = [];
    this.#times = new Map();
    if (deferred.length === 0) return;
    const { root, into, base } = this.#target;
    const above = (this.#trees[this.#tree] ?? "").split("/").length;
    const [from, to] = [base?.[this.#tree] ?? "", into[this.#tree] ?? ""];
    await inDirectory({ root, path: from }, (source) =>
      inDirectory({ root, path: to }, (target) =>
        runInSlices(linkAll(source, target, deferred, { above, times }), this.#signal),
      ),
    );
  }

  async #restrict() {
    const { root, into } = this.#target;
    const above = (this.#trees[this.#tree] ?? "").split("/").length;
    await inDirectory({ root, path: into[this.#tree] ?? "" }, (fd) => {
      // The inner ones first: a closed directory could not be entered any more.
      for (const { path, mode } of this.#readOnly.reverse())
        chmodBelow(fd, path.split("/").slice(above), mode);
    });
    this.#readOnly = [];
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
      throw toolFailure("tar", "exited before its input ended");
    });
    ended.catch(() => undefined);
    await Promise.race([run.feed.put(piece), ended]);
  }

  /** @param {number} tree */
  #start(tree) {
    const feed = new Feed();
    const stop = new AbortController();
    const done = this.#extract(tree, feed, AbortSignal.any([this.#signal, stop.signal]));
    // The rejection is handled with every piece, and at the end.
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
    const { runId, sameOwner } = this.#options;
    // Not --strip-components, which does not restore the tree's own mode, times and attributes. Symlinks stay as they
    // are.
    const pattern = (this.#trees[tree] ?? "").replaceAll(/[^A-Za-z0-9/_ -]/g, String.raw`\$&`);
    const transform = Buffer.from(`s,^${pattern}(/|$),.\\1,xrhS`, "latin1").toString();
    const argv = [
      "tar",
      ...extractOptions,
      sameOwner ? "--same-owner" : "--no-same-owner",
      `--transform=${transform}`,
    ];
    const options = { runId, umask: 0o077, stdin: feed };
    const target = { root, path: into[tree] ?? "" };
    await inDirectory(target, (fd) => runTool(argv, fd, signal, options), { make: true });
  }
}

/**
 * @param {number} source
 * @param {number} target
 * @param {readonly TarEntry[]} entries
 * @param {{ above: number, times: ReadonlyMap<string, string> }} options `above`: number of leading names that the two
 *   directories stand for
 * @returns {Generator<undefined, void, void>}
 */
function* linkAll(source, target, entries, { above, times }) {
  const byDirectory = Map.groupBy(entries, ({ path }) => path.slice(0, path.lastIndexOf("/")));
  // A link changes the time of its directory.
  for (const [directory, files] of byDirectory) {
    const names = directory.split("/").slice(above);
    using from = ownedFd(openBelow(source, names));
    using to = ownedFd(openBelow(target, names));
    for (const entry of files) {
      linkOne(from.fd, to.fd, entry);
      yield;
    }
    const mtime = times.get(directory);
    if (mtime !== undefined) utimesSync(at(to.fd, "."), Number(mtime), Number(mtime));
  }
}

/**
 * @param {number} from
 * @param {number} to
 * @param {TarEntry} entry
 */
function linkOne(from, to, { path, size, mtime }) {
  const name = path.slice(path.lastIndexOf("/") + 1);
  const existing = lstatSync(at(from, name), { throwIfNoEntry: false });
  const isThere =
    existing?.isFile() === true && existing.size === size && isSameTime(existing.mtimeMs, mtime);
  if (!isThere)
    throw damaged("has only changes since another archive, and the files of that archive have changed");
  linkSync(at(from, name), at(to, name));
}

/**
 * @param {number} ms
 * @param {string} seconds
 */
function isSameTime(ms, seconds) {
  // `Stats` has times as numbers; the restored file has all digits.
  return Math.abs(ms - Number(seconds) * 1000) < 1;
}

/**
 * @param {number} directory
 * @param {string[]} names
 * @returns {number} must be closed by the caller
 */
function openBelow(directory, names) {
  return descend(openSubdirectory(directory, "."), names);
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

/**
 * @param {number} directory
 * @param {string[]} names
 * @param {number} mode
 */
function chmodBelow(directory, names, mode) {
  using parent = ownedFd(openBelow(directory, names.slice(0, -1)));
  chmodSync(at(parent.fd, names.at(-1) ?? "."), mode);
}
