// The main job through connect-go over the Connect protocol and over gRPC; errors are read from their rich details.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"
	svc "svc.test/clients/gen/svc/v1"
	"svc.test/clients/gen/svc/v1/svcv1connect"
)

func main() {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	http2 := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	mainJob("connect", svcv1connect.NewAppServiceClient(http.DefaultClient, os.Getenv("SVC_URL"),
		connect.WithInterceptors(withToken())))
	mainJob("grpc", svcv1connect.NewAppServiceClient(http2, os.Getenv("SVC_URL"),
		connect.WithGRPC(), connect.WithInterceptors(withToken())))
}

func mainJob(protocol string, apps svcv1connect.AppServiceClient) {
	ctx := context.Background()
	spec := os.Getenv("SVC_SPEC")
	check := func(ok bool, step string) {
		if !ok {
			log.Fatalf("%s: %s", protocol, step)
		}
	}

	listed := must(apps.ListApps(ctx, connect.NewRequest(&svc.ListAppsRequest{})))
	check(len(listed.Msg.Apps) == 0, "list")

	_, err := apps.InstallApp(ctx, connect.NewRequest(&svc.InstallAppRequest{Spec: spec}))
	refused := detailOf(err, connect.CodeFailedPrecondition)
	check(refused.Reason == "license_required" && refused.GetLicenseRequired().Licenses[0].Name == "LICENSE", "refusal")

	installed := must(apps.InstallApp(ctx, connect.NewRequest(&svc.InstallAppRequest{Spec: spec, LicenseAck: true})))
	check(installed.Msg.State == "STOPPED", "install")
	id := installed.Msg.Id
	started := must(apps.StartApp(ctx, connect.NewRequest(&svc.StartAppRequest{Id: id})))
	check(started.Msg.State == "RUNNING", "start")

	greeting := &svc.UpdateAppSettingsRequest{Id: id, Values: values("greeting", "moin")}
	written := must(apps.UpdateAppSettings(ctx, connect.NewRequest(greeting)))
	check(written.Msg.Values.AsMap()["greeting"] == "moin", "settings")
	colour := &svc.UpdateAppSettingsRequest{Id: id, Values: values("colour", "red")}
	_, err = apps.UpdateAppSettings(ctx, connect.NewRequest(colour))
	broken := detailOf(err, connect.CodeInvalidArgument)
	check(broken.GetInvalidRequest().Violations[0].Field == "values.colour", "violation")

	must(apps.RemoveApp(ctx, connect.NewRequest(&svc.RemoveAppRequest{Id: id})))
	_, err = apps.GetApp(ctx, connect.NewRequest(&svc.GetAppRequest{Id: id}))
	check(detailOf(err, connect.CodeNotFound).Reason == "not_found", "gone")
}

func withToken() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
			request.Header().Set("Authorization", "Bearer "+os.Getenv("SVC_TOKEN"))
			return next(ctx, request)
		}
	})
}

func detailOf(err error, code connect.Code) *svc.ErrorDetail {
	var failure *connect.Error
	if !errors.As(err, &failure) || failure.Code() != code {
		log.Fatalf("%v, but %v was due", err, code)
	}
	return must(failure.Details()[0].Value()).(*svc.ErrorDetail)
}

func values(name string, value any) *structpb.Struct {
	return must(structpb.NewStruct(map[string]any{name: value}))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
