join-title = 您即将加入排队
join-lead = 按照加入的先后顺序入场。
join-button = 加入排队
scheduled-title = 尚未开放
scheduled-lead = 您的位置会保留。开放后按顺序入场。
draw-title = 尚未抽签
draw-lead = 开放时，系统会为此前加入的每位访客随机抽取一个位置。之后加入的访客排在后面。
drawn-lead = 系统已为开放前加入的每位访客随机抽取了位置，访客按此顺序进入。
late-lead = 抽签已结束。现在加入的访客按到达顺序排在后面。
waiting-title = 您正在排队
waiting-lead = 按照加入的先后顺序入场。
almost-title = 马上就到
almost-lead = 下一位就是您。请不要关闭本页面。
paused-title = 排队已暂停
paused-lead = 主办方暂时停止入场。您的位置会保留。
admitted-title = 轮到您了
admitted-lead = 请在时间结束前进入。
admitted-button = 进入
full-title = 队伍已满
full-lead = 请稍后再试。
expired-title = 您的位置已失效
expired-lead = 本页面长时间没有联系，或者您的访问已经结束。
left-title = 您已离开队伍
left-lead = 您的位置已让给下一位。
over-title = 排队已关闭
over-lead = 主办方已关闭排队，不再入场。
lost-title = 连接中断
lost-lead = 连接已断开。您的位置会保留，本页面会自动重试。
offer-title = 在此设备上接管您的位置
offer-lead = 此链接可将队伍中的一个位置移到此设备，仅限一次。目前持有该位置的设备将失去它。
offer-button = 接管位置
moved-title = 您的位置已转移
moved-lead = 另一台设备已通过链接接管该位置并继续排队。此页面及其链接不再通向该位置。
cookies-title = 请允许使用 Cookie
cookies-lead = 您的位置保存在 Cookie 中，但浏览器没有保存。请允许本网站使用 Cookie，然后重新加入。
rejoin-button = 重新排队
work-busy = 您的浏览器正在完成一个用来拦阻机器人的小任务。
work-wait = 一个小任务用来拦阻机器人。没有 JavaScript 时，请等待 { $count } 秒，然后按下按钮。
ahead = { $count ->
    [0] 您前面没有人
   *[other] 您前面还有 { $count } 人
}
entrants = { $count ->
   *[other] { $count } 人参加抽签
}
draw-link = 核对抽签结果
receipt-link = 保存凭证
wait-label = 预计等待
wait-soon = 不到 1 分钟
wait-minutes = { $to ->
    [1] 约 { $to } 分钟
   *[other] { $from }–{ $to } 分钟
}
wait-hours = { $to ->
    [1] 约 { $to } 小时
   *[other] { $from }–{ $to } 小时
}
wait-unknown = 暂时未知
number-label = 您的号码
progress-label = 加入以来的进度
opens-label = 距离开放
ends-label = 剩余时间
updated-label = 最近更新
kept = 刷新或关闭本页面，您的位置都会保留。
check-button = 立即查看
auto-button = 自动更新
leave-button = 离开队伍
move-title = 换一台设备继续
move-lead = 在另一台设备上打开此链接，并在那里接管位置。链接只能使用一次，请勿给他人看。
soldout-title = 已领完
soldout-lead = 全部已被领取。
early-title = 尚未开放
early-lead = 开放后即可领取。此页面会自动更新。
claim-title = 现在可以领取
claim-lead = 请立即领取。每人一份。
claim-button = 立即领取
claimed-title = 领取成功
claimed-lead = 请记下此代码。在此浏览器中，本页面会再次显示它。
ended-title = 已结束
ended-lead = 这里不能再领取。
serial-label = 您的序号
code-label = 您的代码
remaining = { $count ->
    [0] 没有剩余
   *[other] 剩余 { $count } 份
}
language-label = 语言
