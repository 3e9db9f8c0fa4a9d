// Package sdnotify tells systemd how a service of Type=notify stands: READY when it
// serves, WATCHDOG as long as it is well, STOPPING when it ends. It speaks the
// datagram protocol of sd_notify(3); without NOTIFY_SOCKET it does nothing.
package sdnotify
