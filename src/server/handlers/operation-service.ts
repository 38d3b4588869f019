/** OperationService: one domain call per method. */
import type { ServiceImpl } from "@connectrpc/connect";
import type { OperationService } from "../../../gen/svc/v1/operation_pb.ts";
import type { ListOperationsRequestState } from "../../../gen/svc/v1/values.ts";
import type { OperationRegistry } from "../../operations/operation-registry.ts";
import { userOf } from "../rpc/user-context.ts";
import { lineMessage, operationMessage } from "./operation-message.ts";

const defaultPageSize = 100;

export function createOperationService(
  operations: OperationRegistry,
  userName: (uid: number) => Promise<string>,
): ServiceImpl<typeof OperationService> {
  return {
    listOperations: async ({ appId, state, limit = defaultPageSize, pageToken }, context) => {
      const filter = { appId, state: state as ListOperationsRequestState | "", limit, pageToken };
      const { records, nextPageToken } = operations.list(filter, userOf(context));
      const messages = records.map((record) => operationMessage(record, userName));
      return { operations: await Promise.all(messages), nextPageToken };
    },

    getOperation: async ({ id }, context) => {
      const record = operations.get(id, userOf(context));
      return operationMessage(record, userName, record.lines);
    },

    streamOperation: async function* ({ id, after }, context) {
      for await (const event of operations.follow(id, after, userOf(context), context.signal)) {
        if ("line" in event) yield { event: { case: "line", value: lineMessage(event.line) } };
        else yield { event: { case: "operation", value: await operationMessage(event.record, userName) } };
      }
    },

    cancelOperation: async ({ id }, context) =>
      operationMessage(operations.cancel(id, userOf(context)), userName),
  };
}
