/** The operations of a helper on files of the host: one entry per operation of the file service. */
import { bytesTo, entriesTo, reportMs } from "../progress.mjs";
import { packFiles } from "./archive/pack.mjs";
import { unpackFiles } from "./archive/unpack.mjs";
import * as attributes from "./attributes.mjs";
import { deletePaths } from "./delete-paths.mjs";
import { Listings, listDirectory, statPath } from "./entries.mjs";
import { readContent } from "./read-content.mjs";
import { copyPath, movePath } from "./relocate.mjs";
import { searchFiles } from "./search.mjs";
import { discard } from "./staging.mjs";
import { tailFile } from "./tail.mjs";
import { uploadFile } from "./upload.mjs";
import { diskUsage } from "./usage.mjs";

/** @typedef {import("../requests.mjs").Call} Call */
/** @typedef {import("./host-path.mjs").GuardedPath} GuardedPath */
/** @typedef {import("./relocate.mjs").RelocateArgs} RelocateArgs */
/** @typedef {import("./syscalls.mjs").Syscalls} Syscalls */

/** @param {Syscalls} syscalls */
export function createHostOperations(syscalls) {
  const listings = new Listings();
  return {
    hostStat: async (/** @type {GuardedPath} */ args) => ({ value: await statPath(syscalls, args) }),

    hostList: async (
      /** @type {Parameters<typeof listDirectory>[2]} */ args,
      /** @type {Call} */ { signal },
    ) => {
      const { entries, ...value } = await listDirectory(syscalls, listings, args, signal);
      return { value, data: Buffer.from(JSON.stringify(entries)) };
    },

    hostRead: (/** @type {Parameters<typeof readContent>[1]} */ args, /** @type {Call} */ call) =>
      readContent(syscalls, args, call),

    hostUpload: async (
      /** @type {Parameters<typeof uploadFile>[1]} */ args,
      /** @type {Call} */ { input, signal },
    ) => ({ value: await uploadFile(syscalls, args, input, signal) }),

    hostTail: async (/** @type {Parameters<typeof tailFile>[1]} */ args, /** @type {Call} */ call) => {
      await tailFile(syscalls, args, (bytes) => call.output(bytes), call.signal);
      return {};
    },

    hostSearch: async (/** @type {Parameters<typeof searchFiles>[1]} */ args, /** @type {Call} */ call) => {
      await searchFiles(syscalls, args, recordsTo(call), call.signal);
      return {};
    },

    hostUsage: async (/** @type {Parameters<typeof diskUsage>[1]} */ args, /** @type {Call} */ call) => {
      await diskUsage(syscalls, args, recordsTo(call), call.signal);
      return {};
    },

    hostMakeDirectory: async (
      /** @type {Parameters<typeof attributes.makeDirectory>[1]} */ args,
      /** @type {Call} */ { signal },
    ) => ({ value: await attributes.makeDirectory(syscalls, args, signal) }),

    hostAttributes: async (
      /** @type {Parameters<typeof attributes.setAttributes>[1]} */ args,
      /** @type {Call} */ call,
    ) => ({ value: await attributes.setAttributes(syscalls, args, entriesTo(call), call.signal) }),

    hostDelete: async (/** @type {Parameters<typeof deletePaths>[1]} */ args, /** @type {Call} */ call) => {
      const { failureCount, ...lists } = await deletePaths(syscalls, args, entriesTo(call), call.signal);
      return { value: { failureCount }, data: Buffer.from(JSON.stringify(lists)) };
    },

    hostCopy: async (/** @type {RelocateArgs} */ args, /** @type {Call} */ call) => ({
      value: await copyPath(syscalls, args, bytesTo(call), call.signal),
    }),

    hostMove: async (/** @type {RelocateArgs} */ args, /** @type {Call} */ call) => ({
      value: await movePath(syscalls, args, bytesTo(call), call.signal),
    }),

    hostPack: async (/** @type {Parameters<typeof packFiles>[1]} */ args, /** @type {Call} */ call) => ({
      value: await packFiles(syscalls, args, bytesTo(call), call.signal),
    }),

    hostUnpack: async (/** @type {Parameters<typeof unpackFiles>[1]} */ args, /** @type {Call} */ call) => ({
      value: await unpackFiles(syscalls, args, bytesTo(call), call.signal),
    }),

    hostDiscard: async (/** @type {Parameters<typeof discard>[1]} */ args) => {
      await discard(syscalls, args);
      return {};
    },
  };
}

/**
 * Sends records as lines of JSON. Records that only count are sent at intervals.
 * @param {Call} call
 */
function recordsTo({ output }) {
  let reportedMs = 0;
  return async (/** @type {object} */ record) => {
    const nowMs = performance.now();
    const isCount = Object.keys(record).length === 1 && "entries" in record;
    if (isCount && nowMs - reportedMs < reportMs) return;
    reportedMs = nowMs;
    await output(Buffer.from(`${JSON.stringify(record)}\n`));
  };
}
