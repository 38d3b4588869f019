import type { Client } from "@connectrpc/connect";
import type { BackupService } from "../../../../gen/svc/v1/backup_pb.ts";
import type { NodeView } from "../../node-view.ts";

/** Identifies an archive. */
export interface ArchiveKey {
  readonly appId: string;
  readonly storage: string;
  readonly name: string;
}

/** Properties of the parts of an archive's view. */
export interface ArchiveProps {
  client: Client<typeof BackupService>;
  node: NodeView;
  of: ArchiveKey;
  /** The identity for an encrypted archive, stored while the view is open. */
  identity: string;
}
