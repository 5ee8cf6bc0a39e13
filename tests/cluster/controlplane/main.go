// One binary that is a whole Kubernetes control plane: it becomes the component named by its first argument.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

const usage = `usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kwok [flags]
       controlplane certs FOLDER`

func main() {
	if len(os.Args) < 2 {
		fail(usage)
	}
	os.Args = os.Args[1:]
	switch name := os.Args[0]; name {
	case "certs":
		if len(os.Args) != 2 {
			fail(usage)
		}
		if err := writeCerts(os.Args[1]); err != nil {
			fail(err)
		}
	case "etcd":
		wal.SegmentSizeBytes = 4 << 20 // preallocated twice at the start: 8 MB on disk instead of 128
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(kcm.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kwok":
		runKwok()
	default:
		fail(usage)
	}
}

func fail(reason any) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(2)
}

func runKwok() {
	// cobra adds pflag.CommandLine to every root command; Kubernetes put its own --version there.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx := signals.SetupSignalContext()
	ctx, logger := kwoklog.InitFlags(ctx, flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err == nil {
		err = kwokCommand(ctx, flags).ExecuteContext(ctx)
	}
	if err != nil {
		logger.Error("kwok", "err", err)
		os.Exit(1)
	}
}

func kwokCommand(ctx context.Context, flags *pflag.FlagSet) *cobra.Command {
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	return command
}

// writeCerts makes ca.crt, server.crt and server.key for the loopback address, and sa.key, which signs the tokens of
// service accounts. The authority's own key is thrown away.
func writeCerts(folder string) error {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	authority := certificate(1, "dovetail-test-ca")
	authority.IsCA = true
	authority.KeyUsage = x509.KeyUsageCertSign
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return err
	}
	// With the subject key id that CreateCertificate worked out; strict clients want the server's to refer to it.
	if authority, err = x509.ParseCertificate(authorityDER); err != nil {
		return err
	}
	serverKey, err := writeKey(folder, "server.key")
	if err != nil {
		return err
	}
	server := certificate(2, "kube-apiserver")
	server.KeyUsage = x509.KeyUsageDigitalSignature
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	server.DNSNames = []string{"localhost"}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, authority, serverKey.Public(), authorityKey)
	if err != nil {
		return err
	}
	if _, err := writeKey(folder, "sa.key"); err != nil {
		return err
	}
	if err := writePEM(folder, "ca.crt", "CERTIFICATE", authorityDER); err != nil {
		return err
	}
	return writePEM(folder, "server.crt", "CERTIFICATE", serverDER)
}

func certificate(serial int64, name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          big.NewInt(serial),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(0, 1, 0),
		BasicConstraintsValid: true,
	}
}

func writeKey(folder, name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(folder, name, "EC PRIVATE KEY", der)
}

func writePEM(folder, name, kind string, der []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return os.WriteFile(filepath.Join(folder, name), text, 0o600)
}
