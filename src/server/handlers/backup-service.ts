/** BackupService: one domain call per method. */
import type { ServiceImpl } from "@connectrpc/connect";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  CreateBackupResponseSchema,
  RestoreBackupResponseSchema,
  VerifyBackupResponseSchema,
  type BackupPolicySchema,
  type BackupService,
  type BackupStorageSchema,
  type CreateBackupRequest,
  type RestoreBackupRequest,
  type SetBackupPolicyRequest,
  type UpsertBackupStorageRequest,
  type VerifyBackupRequest,
} from "../../../gen/svc/v1/backup_pb.ts";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { BackupMode } from "../../apps/lifecycle/backup-hold.ts";
import { createdAtMsOf, hostOf } from "../../backups/archives/archive-name.ts";
import type { ListedArchive } from "../../backups/archives/archive-list.ts";
import type { AppPolicy } from "../../backups/policies/backup-states.ts";
import type { BackupPolicySpec } from "../../backups/policies/policy.ts";
import type { BackupOutcome } from "../../backups/backup-maker.ts";
import type { Backups } from "../../backups/backups.ts";
import type { OpenableRef } from "../../backups/archives/archive-access.ts";
import type { RestoreOutcome } from "../../backups/restore.ts";
import type { VerifyOutcome } from "../../backups/verify.ts";
import type { ArchiveRef } from "../../backups/archives/archive-catalog.ts";
import { storageProblem, type StorageEntry } from "../../backups/storages/storage-list.ts";
import { decodePageToken, encodePageToken } from "../../apps/records/page-token.ts";
import { invalidField } from "../../errors.ts";
import type { ArchivedEntry } from "../../run-as/user-helper-types.ts";
import { secretMask } from "../../lib/secret-mask.ts";
import { userOf } from "../rpc/user-context.ts";
import { requestedSpan, setContentRange, type ByteSpan } from "./byte-range.ts";
import type { LongMethods } from "./long-method.ts";
import { workOf } from "./progress-events.ts";
import { contentsOf, firstOf } from "./uploads.ts";

const defaultPageSize = 1000;
const archiveType = "application/zstd";
const fileType = "application/octet-stream";

export function createBackupService(backups: Backups, long: LongMethods): ServiceImpl<typeof BackupService> {
  const create = long.define({
    ...{ kind: "backup", output: CreateBackupResponseSchema, last: "result" },
    appOf: ({ appId }: CreateBackupRequest) => appId,
    work: async (request: CreateBackupRequest, user, work) => {
      const { appId, storages, keep, keepDaily, keepWeekly, keepMonthly, marks, since } = request;
      const mode = request.mode as BackupMode | "";
      const options = { storages, keep, keepDaily, keepWeekly, keepMonthly, mode, marks, since };
      return createResponse(await backups.create(appId, options, user, work));
    },
  });
  const restore = long.define({
    ...{ kind: "restore", output: RestoreBackupResponseSchema, last: "result" },
    ...{ appOf: ({ appId }: RestoreBackupRequest) => appId, mayBeGone: true },
    work: async (request: RestoreBackupRequest, user, work) => {
      const { stopApp, asNew, newName, paths, dryRun, licenseAck, permissionsAck } = request;
      const options = { stopApp, asNew, newName, paths, dryRun, licenseAck, permissionsAck };
      return restoreResponse(await backups.restorer.restore(openableOf(request), options, user, work));
    },
  });
  const verify = long.define({
    ...{ kind: "verify", output: VerifyBackupResponseSchema, last: "result" },
    ...{ appOf: ({ appId }: VerifyBackupRequest) => appId, mayBeGone: true },
    work: async (request: VerifyBackupRequest, user, work) =>
      verifyResponse(request, await backups.verifier.verify(openableOf(request), request.deep, user, work)),
  });

  return {
    listBackups: async ({ appId, storage, limit = defaultPageSize, pageToken }, context) => {
      const listed = await backups.list({ appId, storage, limit, pageToken }, userOf(context));
      const { errors, nextPageToken } = listed;
      const messages = listed.archives.map((archive) => archiveMessage(archive));
      return { backups: messages, errors, nextPageToken };
    },

    listBackupStorages: (_request, context) => {
      const { root } = userOf(context);
      return { storages: backups.storages.all().map((entry) => storageMessage(entry, root)) };
    },

    upsertBackupStorage: async (request) =>
      storageMessage(await backups.storages.upsert(storageEntry(request)), true),

    removeBackupStorage: async ({ name, managedBy }) => ({
      name,
      usedBy: await backups.removeStorage(name, managedBy),
    }),

    testBackupStorage: async ({ name }, { signal }) => ({ checks: await backups.testStorage(name, signal) }),

    createBackup: create.call,
    createBackupStream: create.stream,

    restoreBackup: restore.call,
    restoreBackupStream: restore.stream,

    getBackup: async (request, context) => {
      const { footer, sizeBytes, isEncrypted, known } = await backups.show(
        openableOf(request),
        userOf(context),
        context.signal,
      );
      const { app, parts } = footer;
      return {
        archive: {
          ...{ name: request.name, storage: request.storage, appId: app.id, sizeBytes: BigInt(sizeBytes) },
          owner: app.owner_uid,
          createdAt: timestampFromMs(createdAtMsOf(footer.created_at)),
          encrypted: isEncrypted,
          node: hostOf(footer.host),
          fromThisNode: hostOf(footer.host) === backups.nodeId,
          ...verifiedMessage(known),
        },
        appName: app.name,
        packageId: app.package_id,
        version: app.version,
        runtime: app.runtime,
        ownerName: app.owner,
        mode: footer.mode,
        svcVersion: footer.svc_version,
        contentBytes: BigInt(parts.contentBytes),
        entries: BigInt(parts.entries),
        warnings: footer.warnings,
      };
    },

    verifyBackup: verify.call,
    verifyBackupStream: verify.stream,

    deleteBackup: async (request, context) => {
      await backups.delete(refOf(request), userOf(context), context.signal);
      return { name: request.name };
    },

    browseBackup: async (request, context) => {
      const { path, limit = defaultPageSize, pageToken } = request;
      const after = pageToken === "" ? 0 : placeOf(pageToken);
      const page = { directory: path.replace(/\/+$/, ""), after, limit };
      const { entries, more } = await backups.browse(
        openableOf(request),
        page,
        userOf(context),
        context.signal,
      );
      return {
        entries: entries.map(entryMessage),
        nextPageToken: more ? encodePageToken(String(after + limit)) : "",
      };
    },

    readBackupFile: async function* (request, context) {
      const pieces = backups.readFile(openableOf(request), request.path, userOf(context), context.signal);
      for await (const { sizeBytes, bytes } of pieces) {
        yield { content: { contentType: fileType, data: bytes }, sizeBytes: BigInt(sizeBytes) };
      }
    },

    downloadBackup: async function* (request, context) {
      const start = Number(request.offset);
      const spanOf = (sizeBytes: number): ByteSpan => {
        const requested = start > 0 ? undefined : requestedSpan(context, sizeBytes);
        const span = requested ?? { start, end: sizeBytes };
        setContentRange(context, span, sizeBytes, requested !== undefined);
        return span;
      };
      const { signal } = context;
      const pieces = backups.download(refOf(request), spanOf, userOf(context), signal);
      for await (const { sizeBytes, bytes } of pieces) {
        yield { content: { contentType: archiveType, data: bytes }, sizeBytes: BigInt(sizeBytes) };
      }
    },

    getBackupPolicy: async ({ appId }, context) =>
      policyMessage(appId, await backups.policy(appId, userOf(context))),

    setBackupPolicy: async (request, context) => {
      const { appId, fromPackage } = request;
      await backups.setPolicy(appId, fromPackage ? undefined : policySpec(request), userOf(context));
      return policyMessage(appId, await backups.policy(appId, userOf(context)));
    },

    uploadBackup: async (requests, context) => {
      const { first, all } = await firstOf(requests);
      const { storage, identity } = first;
      const target = { storage, identity };
      const archive = await backups.upload(target, contentsOf(all), userOf(context), workOf(context));
      const isOfThisNode = archive.host === backups.nodeId;
      const listed = { ...archive, storage, isOfThisNode, verifiedAtMs: undefined, restoredAtMs: undefined };
      return archiveMessage(listed);
    },
  };
}

function refOf({ appId, storage, name }: ArchiveRef): ArchiveRef {
  return { appId, storage, name };
}

function openableOf(request: OpenableRef): OpenableRef {
  return { ...refOf(request), identity: request.identity };
}

function archiveMessage(archive: ListedArchive) {
  const { name, storage, appId, ownerUid, sizeBytes, createdAtMs, isEncrypted, host, isOfThisNode } = archive;
  return {
    ...{ name, storage, appId },
    owner: ownerUid,
    sizeBytes: BigInt(sizeBytes),
    createdAt: timestampFromMs(createdAtMs),
    encrypted: isEncrypted,
    node: host,
    fromThisNode: isOfThisNode,
    ...verifiedMessage(archive),
  };
}

function verifiedMessage(known: Pick<ListedArchive, "verifiedAtMs" | "restoredAtMs"> | undefined) {
  return {
    ...(known?.verifiedAtMs !== undefined && { verifiedAt: timestampFromMs(known.verifiedAtMs) }),
    ...(known?.restoredAtMs !== undefined && { restoredAt: timestampFromMs(known.restoredAtMs) }),
  };
}

function createResponse({ results, warnings, contentBytes, entries }: BackupOutcome) {
  return {
    results: results.map((result) => ({ ...result, sizeBytes: BigInt(result.sizeBytes) })),
    warnings,
    contentBytes: BigInt(contentBytes),
    entries: BigInt(entries),
  };
}

function restoreResponse({ restoredBytes, entries, ...outcome }: RestoreOutcome) {
  return { ...outcome, restoredBytes: BigInt(restoredBytes), entries: BigInt(entries) };
}

function verifyResponse({ name }: VerifyBackupRequest, { contentBytes, entries, restored }: VerifyOutcome) {
  return { name, contentBytes: BigInt(contentBytes), entries: BigInt(entries), restored };
}

function policySpec(request: SetBackupPolicyRequest): BackupPolicySpec {
  const { trigger, storages, keep, keepDaily, keepWeekly, keepMonthly, verify } = request;
  const mode = request.mode === "" ? "live" : (request.mode as BackupMode);
  const catchUp = request.catchUp === "latest" ? "latest" : "none";
  return { trigger, storages, keep, keepDaily, keepWeekly, keepMonthly, mode, verify, catchUp };
}

function policyMessage(
  appId: string,
  { spec, isPackages, lastError, nextRunMs }: AppPolicy & { nextRunMs: number | undefined },
): MessageInitShape<typeof BackupPolicySchema> {
  const { keep, keepDaily, keepWeekly, keepMonthly, ...rest } = spec;
  return {
    appId,
    fromPackage: isPackages,
    ...rest,
    ...(keep !== undefined && { keep }),
    ...(keepDaily !== undefined && { keepDaily }),
    ...(keepWeekly !== undefined && { keepWeekly }),
    ...(keepMonthly !== undefined && { keepMonthly }),
    ...(nextRunMs !== undefined && { nextRunAt: timestampFromMs(nextRunMs) }),
    lastError,
  };
}

function entryMessage({ path, type, sizeBytes, mode, modifiedMs, target, sha256 }: ArchivedEntry) {
  return {
    ...{ path, type, target, sha256 },
    sizeBytes: BigInt(sizeBytes),
    mode: mode.toString(8).padStart(4, "0"),
    modifiedAt: timestampFromMs(modifiedMs),
  };
}

function storageEntry(request: UpsertBackupStorageRequest): StorageEntry {
  const { name, managedBy = "", location, maxBytesPerSec, recipients } = request;
  const shared = {
    name,
    managedBy,
    recipients,
    ...(maxBytesPerSec !== undefined && { maxBytesPerSec: Number(maxBytesPerSec) }),
  };
  if (location.case === "local") return { ...shared, location: { kind: "local", dir: location.value.dir } };
  if (location.case === undefined)
    throw invalidField("local", "set either a bucket (s3) or a directory (local)");
  const {
    endpoint,
    region,
    bucket,
    accessKey = secretMask,
    secretKey = secretMask,
    prefix,
    pathStyle,
    ca,
  } = location.value;
  return {
    ...shared,
    location: {
      kind: "s3",
      ...{ endpoint, region, bucket, accessKey, secretKey, prefix, ca },
      ...(pathStyle !== undefined && { pathStyle }),
    },
  };
}

/** @param isRoot false: only names and kinds */
function storageMessage(
  { name, managedBy, location, maxBytesPerSec, recipients }: StorageEntry,
  isRoot: boolean,
): MessageInitShape<typeof BackupStorageSchema> {
  const shown = {
    name,
    ...(managedBy !== "" && { managedBy }),
    ...(maxBytesPerSec !== undefined && { maxBytesPerSec: BigInt(maxBytesPerSec) }),
    recipients: isRoot ? [...recipients] : [],
  };
  if (location === undefined) return { ...shown, problem: storageProblem };
  if (location.kind === "local") {
    return { ...shown, location: { case: "local", value: { dir: isRoot ? location.dir : "" } } };
  }
  if (!isRoot) return { ...shown, location: { case: "s3", value: { bucket: "" } } };
  const { kind: _, accessKey: __, secretKey: ___, ...value } = location;
  return { ...shown, location: { case: "s3", value } };
}

/** @throws SvcError `invalid_request` for an invalid page token */
function placeOf(pageToken: string): number {
  const place = decodePageToken(pageToken);
  if (!/^[1-9]\d{0,15}$/.test(place)) throw invalidField("page_token", "is not a token of this listing");
  return Number(place);
}
