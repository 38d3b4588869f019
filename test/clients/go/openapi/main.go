// The main job through a client that oapi-codegen made of openapi.json.
package main

import (
	"context"
	"log"
	"net/http"
	"os"

	svc "svc.test/clients/gen/openapi"
)

func main() {
	ctx := context.Background()
	spec := os.Getenv("SVC_SPEC")
	withToken := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("SVC_TOKEN"))
		return nil
	}
	client := must(svc.NewClientWithResponses(os.Getenv("SVC_URL"), svc.WithRequestEditorFn(withToken)))

	listed := must(client.ListAppsWithResponse(ctx, &svc.ListAppsParams{}))
	check(listed.JSON200 != nil && len(listed.JSON200.Apps) == 0, "list", listed.Body)

	refused := must(client.InstallAppWithResponse(ctx, svc.InstallAppRequest{Spec: spec}))
	check(refused.JSON409 != nil && refused.JSON409.Reason == "license_required" &&
		refused.JSON409.LicenseRequired.Licenses[0].Name == "LICENSE", "refusal", refused.Body)

	acknowledged := true
	installed := must(client.InstallAppWithResponse(ctx, svc.InstallAppRequest{Spec: spec, LicenseAck: &acknowledged}))
	check(installed.JSON200 != nil && installed.JSON200.State == "STOPPED", "install", installed.Body)
	id := installed.JSON200.Id

	started := must(client.StartAppWithResponse(ctx, id))
	check(started.JSON200 != nil && started.JSON200.State == "RUNNING", "start", started.Body)

	greeting := svc.UpdateAppSettingsJSONRequestBody{Values: map[string]any{"greeting": "moin"}}
	written := must(client.UpdateAppSettingsWithResponse(ctx, id, greeting))
	check(written.JSON200 != nil && (*written.JSON200.Values)["greeting"] == "moin", "settings", written.Body)
	colour := svc.UpdateAppSettingsJSONRequestBody{Values: map[string]any{"colour": "red"}}
	broken := must(client.UpdateAppSettingsWithResponse(ctx, id, colour))
	check(broken.JSON400 != nil && broken.JSON400.Reason == "invalid_request" &&
		broken.JSON400.InvalidRequest.Violations[0].Field == "values.colour", "violation", broken.Body)

	removed := must(client.RemoveAppWithResponse(ctx, id))
	check(removed.JSON200 != nil, "remove", removed.Body)
	gone := must(client.GetAppWithResponse(ctx, id))
	check(gone.JSON404 != nil && gone.JSON404.Reason == "not_found", "gone", gone.Body)
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func check(ok bool, step string, body []byte) {
	if !ok {
		log.Fatalf("%s: %s", step, body)
	}
}
