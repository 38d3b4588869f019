import type { Client } from "@connectrpc/connect";
import type { BackupService } from "../../../../gen/svc/v1/backup_pb.ts";
import type { NodeView } from "../../node-view.ts";

/** Which archive. */
export interface ArchiveKey {
  readonly appId: string;
  readonly storage: string;
  readonly name: string;
}

/** What the parts of an archive's view go by. */
export interface ArchiveProps {
  client: Client<typeof BackupService>;
  node: NodeView;
  of: ArchiveKey;
  /** Of an encrypted one: kept for as long as it is looked at. */
  identity: string;
}
